use proptest::prelude::*;

use super::super::Dataset;
use super::*;
use crate::error::Error;

fn options() -> CsvOptions {
    CsvOptions::new("t.csv")
}

fn parse(bytes: &[u8], options: &CsvOptions) -> Result<TensorDataset> {
    super::parse(bytes, options).map(|(data, _)| data)
}

fn fails(text: &str, options: &CsvOptions) -> String {
    parse(text.as_bytes(), options).unwrap_err().to_string()
}

#[test]
fn reads_numbers_and_sorted_classes() {
    let data = parse(b"\xef\xbb\xbfa, b,kind\r\n1,2.5,x\r\n\r\n-3e1, 4 ,\"a\"\r\n", &options()).unwrap();
    assert_eq!(data.inputs().as_f32().unwrap(), [1.0, 2.5, -30.0, 4.0]);
    assert_eq!(data.targets().as_u32().unwrap(), [1, 0]);
    assert_eq!(data.classes().unwrap(), ["a", "x"]);
}

#[test]
fn the_label_is_found_by_name_and_by_index() {
    let text = b"kind,a,b\n7,1,2\n";
    for label in [Label::Name("kind".into()), Label::Index(0), Label::Index(-3)] {
        let data = parse(text, &CsvOptions { label: Some(label), ..options() }).unwrap();
        assert_eq!((data.inputs().as_f32().unwrap(), &data.classes().unwrap()[0]), (&[1.0, 2.0][..], &"7".to_string()));
    }
    let named = |name: &str| CsvOptions { label: Some(Label::Name(name.into())), ..options() };
    assert_eq!(
        fails("width,species\n1,x\n", &named("speceis")),
        "t.csv: there is no label column 'speceis'; the columns are 'width', 'species'; did you mean 'species'?"
    );
    assert_eq!(fails("a,b,b\n1,2,3\n", &named("b")), "t.csv: the header has more than one column 'b'");
    let no_header = CsvOptions { header: false, ..named("b") };
    assert!(fails("1,2\n", &no_header).contains("named 'b', but the file is read without a header"));
    for index in [2, -3, i64::MIN, i64::MAX] {
        let error = fails("a,b\n1,2\n", &CsvOptions { label: Some(Label::Index(index)), ..options() });
        let expected = format!("there is no label column {index}: the file has 2 columns (0 to 1, or -2 to -1)");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn labels_may_be_written_both_ways_in_a_run_file() {
    #[derive(serde::Deserialize)]
    struct Run {
        a: Label,
        b: Label,
    }
    let run: Run = toml::from_str("a = -1\nb = \"species\"").unwrap();
    assert_eq!((run.a, run.b), (Label::Index(-1), Label::Name("species".into())));
}

#[test]
fn known_classes_are_kept() {
    let known = CsvOptions { classes: Some(vec!["b".into(), "a".into(), "c".into()]), ..options() };
    let data = parse(b"x,y\n1,a\n2,b\n", &known).unwrap();
    assert_eq!((data.targets().as_u32().unwrap(), data.classes().unwrap().len()), (&[1, 0][..], 3));
    let error = fails("x,y\n1,a\n2,z9\n", &known);
    assert_eq!(error, "t.csv:3: column 2: label 'z9' is not one of the known classes 'b', 'a', 'c' (column 'y')");
}

#[test]
fn regression_targets_are_numbers() {
    let options = CsvOptions { regression: true, ..options() };
    let data = parse(b"x,y\n1,0.5\n2,-1\n", &options).unwrap();
    assert_eq!((data.targets().shape().dims(), data.targets().as_f32().unwrap()), (&[2, 1][..], &[0.5, -1.0][..]));
    assert_eq!(fails("x,y\n1,high\n", &options), "t.csv:2: column 2: 'high' is not a number (column 'y')");
}

#[test]
fn bad_cells_are_named_by_line_and_column() {
    assert_eq!(fails("a,b,c\n1,2,x\n3,four,y\n", &options()), "t.csv:3: column 2: 'four' is not a number (column 'b')");
    let plain = CsvOptions { header: false, ..options() };
    assert_eq!(fails("1,2,x\n\n\n3,four,y\n", &plain), "t.csv:4: column 2: 'four' is not a number");
    assert_eq!(fails("1,2,x\r\n\r\n3,four,y\r\n", &plain), "t.csv:3: column 2: 'four' is not a number");
    assert_eq!(fails("1,2,\"x\ny\"\nz,1,y\n", &plain), "t.csv:3: column 1: 'z' is not a number");
    assert_eq!(fails("1,2,x\rz,3,y\r", &plain), "t.csv:2: column 1: 'z' is not a number");
    assert_eq!(fails("\u{feff}1,2,x\nz,3,y\n", &plain), "t.csv:2: column 1: 'z' is not a number");
    assert_eq!(fails("z,1,y\n", &plain), "t.csv:1: column 1: 'z' is not a number");
    assert_eq!(fails("1,,x\n", &plain), "t.csv:1: column 2: the cell is empty, expected a number");
    assert_eq!(fails("1,2,\n", &plain), "t.csv:1: column 3: the label is empty");
    for cell in ["NaN", "inf", "-Infinity"] {
        let error = fails(&format!("1,{cell},x\n"), &plain);
        assert_eq!(error, format!("t.csv:1: column 2: '{cell}' is not a finite number"));
    }
    assert_eq!(fails("1,1e39,x\n", &plain), "t.csv:1: column 2: 1e39 is beyond the range of a float32");
    let utf8 = parse(b"1,2,x\n1,2,\xff\n", &plain).unwrap_err().to_string();
    assert_eq!(utf8, "t.csv:2: the line is not UTF-8 text");
}

#[test]
fn ragged_and_missing_rows_are_refused() {
    assert_eq!(fails("a,b\n1,x\n2\n", &options()), "t.csv:3: expected 2 fields, got 1");
    assert_eq!(fails("a,b\n1,x\n\n2,3,x\n", &options()), "t.csv:4: expected 2 fields, got 3");
    assert_eq!(fails("", &options()), "t.csv: the file is empty");
    assert_eq!(fails("\n\n", &options()), "t.csv: the file is empty");
    assert_eq!(fails("a,b\n", &options()), "t.csv: there is no data after the header");
    assert!(fails("a;b\n1;x\n", &options()).starts_with("t.csv: there is no column beside the label with ','"));
    assert!(parse(b"a;b\n1;x\n", &CsvOptions { delimiter: b';', ..options() }).is_ok());
    assert!(fails("a,b\n", &CsvOptions { delimiter: b'\n', ..options() }).starts_with("delimiter: "));
}

#[test]
fn a_first_line_of_data_is_not_taken_for_a_header() {
    for text in ["0,0,5,3\n0,1,2,3\n", "5.1,3.5,setosa\n4.9,3.0,setosa\n", "5,x\n4,y\n"] {
        let error = fails(text, &options());
        assert!(error.starts_with("t.csv:1: the first line looks like data"), "{error}");
    }
    for text in ["0,1,2,label\n5,5,5,x\n", "2019,2020,label\n5,5,x\n", "1,label\n5,x\n", "a,1,label\n5,5,x\n"] {
        assert_eq!(parse(text.as_bytes(), &options()).unwrap().len(), 1);
    }
}

#[test]
fn samples_take_the_shape_asked_for() {
    let shaped = |dims: &[usize]| CsvOptions { sample_shape: Some(dims.to_vec()), header: false, ..options() };
    let data = parse(b"1,2,3,4,x\n", &shaped(&[1, 2, 2])).unwrap();
    assert_eq!(data.inputs().shape().dims(), [1, 1, 2, 2]);
    let error = fails("1,2,3,4,x\n", &shaped(&[3]));
    assert_eq!(error, "t.csv: a sample of shape [3] needs 3 feature columns, got 4");
    assert!(fails("1,2,x\n", &shaped(&[usize::MAX, 2])).contains("needs far more feature columns"));
}

#[test]
fn files_are_read_plain_or_compressed_with_or_without_label() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        CsvOptions { label: Some(Label::Index(0)), ..CsvOptions::new(path) }
    };
    let labelled = file("a.csv.gz", &source::gzip(b"kind,a,b\nx,1,2\ny,3,4\n"));
    assert_eq!(read_csv(&labelled).unwrap().len(), 2);
    let bare = file("b.csv", b"a,b\n1,2\n3,4\n");
    let expected = HostTensor::f32([2, 2], vec![1.0, 2.0, 3.0, 4.0]).unwrap();
    assert_eq!(read_csv_features(&labelled, 2).unwrap(), expected);
    assert_eq!(read_csv_features(&bare, 2).unwrap(), expected);
    let error = read_csv_features(&bare, 4).unwrap_err().to_string();
    assert!(error.ends_with("b.csv: expected 4 columns (or one more, with the label), got 2"), "{error}");
    assert!(matches!(read_csv(&CsvOptions::new("no/such.csv")), Err(Error::Io { .. })));
}

proptest! {
    #[test]
    fn numbers_come_back_bit_for_bit(rows in prop::collection::vec((-1e30_f32..1e30, -1.0_f32..1.0, 0_u8..5), 1..40)) {
        let text: String = rows.iter().map(|(a, b, label)| format!("{a:e},{b},{label}\n")).collect();
        let data = parse(text.as_bytes(), &CsvOptions { header: false, ..options() }).unwrap();
        let values: Vec<f32> = rows.iter().flat_map(|&(a, b, _)| [a, b]).collect();
        prop_assert_eq!(data.inputs().as_f32().unwrap(), values);
        let classes = data.classes().unwrap();
        for (&found, (_, _, label)) in data.targets().as_u32().unwrap().iter().zip(&rows) {
            prop_assert_eq!(&classes[found as usize], &label.to_string());
        }
    }

    #[test]
    fn no_content_makes_the_reader_panic(text in "[0-9a,.\"\r\n \\-]{0,60}", bytes: Vec<u8>, header: bool, regression: bool) {
        let options = CsvOptions { header, regression, ..options() };
        let _ = parse(text.as_bytes(), &options);
        let _ = parse(&bytes, &options);
    }
}
