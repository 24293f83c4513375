#!/usr/bin/env python3
"""picture.py TITLE < OUTPUT > FILE.svg: a terminal's text as an SVG, for the README."""
import html, sys

lines = sys.stdin.read().rstrip("\n").split("\n")
width, height = 8.2 * max(map(len, lines)) + 40, 18 * len(lines) + 66
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}"', end=" ")
print('font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13">')
print(f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#16181d"/>', end="")
print(f'<rect width="{width:.0f}" height="30" rx="8" fill="#262a33"/>')
for x, colour in ((18, "#ff5f56"), (38, "#ffbd2e"), (58, "#27c93f")):
    print(f'<circle cx="{x}" cy="15" r="6" fill="{colour}"/>')
print(f'<text x="{width / 2:.0f}" y="20" fill="#9aa3b2" text-anchor="middle">{html.escape(sys.argv[1])}</text>')
for number, line in enumerate(lines):
    colour = "#7ee787" if line.startswith("$") else "#d6dae2"
    print(f'<text x="20" y="{54 + 18 * number}" fill="{colour}" xml:space="preserve">{html.escape(line)}</text>')
print("</svg>")
