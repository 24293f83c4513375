//! What docs/run-file.md says of keys, kinds and defaults, held against the descriptions that run files are read by.

use everygpu::config::{Key, RunConfig, keys};

/// A key as the page has it in a table.
#[derive(Debug)]
struct Documented {
    table: String,
    kind: Option<String>,
    name: String,
    default: Option<String>,
}

fn page() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/run-file.md");
    std::fs::read_to_string(path).expect("it is in the repository")
}

/// The sections of the page by their names (`data`), each without its heading.
fn sections(page: &str) -> Vec<(&str, &str)> {
    page.split("\n## `[").skip(1).map(|section| section.split_once("]`\n").expect("a heading")).collect()
}

/// What stands between backticks.
fn codes(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The keys that a cell names: `key` or `key = default`.
fn named(cell: &str) -> Vec<(String, Option<String>)> {
    let key = |code: &&str| {
        let (name, default) = code.split_once(" = ").map_or((*code, None), |(name, default)| (name, Some(default)));
        let is_key = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        is_key.then(|| (name.to_owned(), default.map(str::to_owned)))
    };
    codes(cell).iter().filter_map(key).collect()
}

/// The keys in the tables of a section.
fn documented(section: &str, text: &str) -> Vec<Documented> {
    let mut found: Vec<Documented> = Vec::new();
    let (mut header, mut format, mut groups) = (Vec::new(), None, false);
    // What "the same" stands for.
    let mut above = Vec::new();
    for line in text.lines() {
        if let Some((_, after)) = line.split_once("With `format = \"") {
            format = after.split('"').next().map(str::to_owned);
        }
        let Some(row) = line.strip_prefix("| ") else {
            header.clear();
            continue;
        };
        let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        if header.is_empty() {
            (header, groups) = (cells, false);
            continue;
        }
        let mut add = |table: &str, kind: Option<String>, (name, default): (String, Option<String>)| {
            found.push(Documented { table: table.to_owned(), kind, name, default });
        };
        match header[..] {
            _ if cells[0] == "---" => {}
            ["key", "default", ..] => {
                groups |= cells[0] == "`match`";
                let table = if groups { "optimizer.groups" } else { section };
                let is_code =
                    cells[1].matches('`').count() == 2 && cells[1].starts_with('`') && cells[1].ends_with('`');
                let default = is_code.then(|| cells[1].trim_matches('`').to_owned());
                named(cells[0]).into_iter().for_each(|(name, _)| add(table, format.clone(), (name, default.clone())));
            }
            ["kind", what, ..] => {
                let (table, cell) = match (section, what) {
                    ("model", "keys") => ("model.layers", cells[1]),
                    ("model", "settings") => ("model.loss", cells[1]),
                    ("model", "the weights are") => ("model.layers.init", cells[1]),
                    ("optimizer", _) => ("optimizer", cells[2]),
                    _ => (section, cells[1]),
                };
                let mut keys = named(cell);
                if cell.contains("the same") {
                    let own: Vec<String> = keys.iter().map(|(name, _)| name.clone()).collect();
                    keys.extend(above.iter().filter(|(name, _)| !own.contains(name)).cloned());
                }
                for kind in codes(cells[0]) {
                    keys.iter().for_each(|key| add(table, Some(kind.to_owned()), key.clone()));
                }
                above = keys;
            }
            _ => {}
        }
    }
    found
}

/// Whether two defaults are the same: as TOML, a number for each of several, a size in its units; else as words.
fn agree(page: &str, table: &str) -> bool {
    let value = |text: &str| {
        let parsed = format!("x = {}", text.replace("epochs", "epoch")).parse::<toml::Table>().ok();
        parsed.map(|mut parsed| parsed.remove("x").expect("it is set"))
    };
    let number = |value: &toml::Value| value.as_float().or_else(|| value.as_integer().map(|v| v as f64));
    match (value(page), value(table)) {
        (Some(page), Some(table)) => match (&page, &table) {
            (toml::Value::String(size), toml::Value::Integer(bytes)) => {
                let gibibytes = size.strip_suffix("GiB").and_then(|count| count.parse::<i64>().ok());
                gibibytes == Some(bytes >> 30)
            }
            (one, toml::Value::Array(several)) if number(one).is_some() => {
                several.iter().all(|entry| number(entry) == number(one))
            }
            _ => page == table || number(&page).is_some() && number(&page) == number(&table),
        },
        _ => page == table,
    }
}

/// What the page and the descriptions do not say alike.
fn differences(page: &str, keys: &[Key]) -> Vec<String> {
    let mut found = Vec::new();
    let sections = sections(page);
    let documented: Vec<Documented> = sections.iter().flat_map(|(name, text)| documented(name, text)).collect();
    let is = |d: &Documented, key: &Key| {
        d.table == key.table && d.name == key.name && (key.kind.is_none() || d.kind.as_deref() == key.kind)
    };
    // What `out_init` may be is said of `init`.
    for key in keys.iter().filter(|key| key.table != "model.layers.out_init") {
        let section = key.table.split('.').next().expect("there is one");
        let text = sections.iter().find(|(name, _)| *name == section).map_or("", |(_, text)| text);
        let told = [format!("`{}`", key.name), format!("`{} = ", key.name)].iter().any(|name| text.contains(name));
        let listed = documented.iter().any(|d| is(d, key));
        // A few stand in a sentence.
        let sentence = ["kind", "name", "init", "use", "with", "images", "labels", "dir"].contains(&key.name);
        if !told || !listed && !sentence {
            found.push(format!("{key:?} is not documented"));
        }
    }
    for d in &documented {
        let known: Vec<&Key> = keys.iter().filter(|key| is(d, key)).collect();
        if known.is_empty() {
            found.push(format!("{d:?} is not known"));
        }
        for key in known {
            if let (Some(page), Some(table)) = (&d.default, &key.default)
                && !agree(page, table)
            {
                found.push(format!("{d:?}: the default is {table}"));
            }
        }
    }
    found
}

#[test]
fn the_page_has_every_key_with_its_default_and_no_other() {
    let (page, keys) = (page(), keys());
    assert_eq!(differences(&page, &keys), [""; 0]);
    assert!(keys.len() > 150, "{} keys", keys.len());
    for key in &keys {
        assert!(!key.expected.is_empty() && !key.meaning.is_empty(), "{key:?}");
    }
    for (right, wrong) in [
        ("| `epochs` | `10` |", "| `epochs` | `11` |"),
        ("| `epochs` |", "| `rounds` |"),
        ("`vocabulary`, `width`", "`vocabulary`, `widths`"),
        ("`kernel`, `stride = kernel`, `padding = 0`", "`kernel`, `stride = 1`, `padding = 0`"),
        ("`gamma`, `every = \"1 epoch\"`", "`gamma`, `every = \"2 epochs\"`"),
    ] {
        assert!(page.contains(right), "{right}");
        assert!(!differences(&page.replacen(right, wrong, 1), &keys).is_empty(), "{wrong}");
    }
}

/// The learning rate's default depends on the kind, so it is looked up.
#[test]
fn the_page_has_the_learning_rate_of_every_optimizer() {
    let page = page();
    let (_, rows) = page.split_once("| kind | `lr` |").expect("a table of optimizers");
    let rows: Vec<&str> = rows.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    for row in &rows {
        let [kind, rate, ..] = codes(row)[..] else { panic!("{row}") };
        let text = format!("[optimizer]\nkind = \"{kind}\"\n[model]\nlayers = [\"relu\"]\n");
        let config = RunConfig::parse(&text, "run.toml", std::path::Path::new(""), &[]).expect("it can be used");
        assert_eq!(rate.parse(), Ok(config.train.schedule.base), "{row}");
    }
    assert_eq!(rows.len(), 7);
}
