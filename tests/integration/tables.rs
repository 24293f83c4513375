//! Tables: columns by name, quotes, labels that are numbers, and values that float32 cannot tell apart.

use std::path::PathBuf;

use everygpu::config::{LoadedData, RunConfig};
use everygpu::data::{CsvOptions, Dataset, TensorDataset, read_csv};
use everygpu::error::Result;
use everygpu::run::DataCard;
use tempfile::TempDir;

struct Place(TempDir);

impl Place {
    fn new(files: &[(&str, &str)]) -> Self {
        let place = Self(tempfile::tempdir().expect("a folder"));
        files.iter().for_each(|(name, text)| place.write(name, text));
        place
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).expect("writable");
    }

    /// A run on `t.csv` with these keys of `[data]`.
    fn config(&self, keys: &str) -> RunConfig {
        let data = format!("[data]\nformat = \"csv\"\npath = \"t.csv\"\n{keys}\n");
        let text = format!("{data}[model]\nlayers = [{{ kind = \"linear\", out = 2 }}]\n");
        RunConfig::parse(&text, "run.toml", self.0.path(), &[]).expect("a run file")
    }

    fn load(&self, keys: &str) -> Result<LoadedData> {
        let config = self.config(keys);
        config.data.load(0, &config.model.loss)
    }

    fn csv(&self) -> Result<TensorDataset> {
        read_csv(&CsvOptions::new(self.0.path().join("t.csv")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn inputs(data: &dyn Dataset) -> Vec<f32> {
    let all: Vec<usize> = (0..data.len()).collect();
    data.gather(&all).expect("samples").inputs.as_f32().expect("floats").to_vec()
}

fn classes(data: &LoadedData) -> String {
    data.card.classes.clone().expect("classes").join(" ")
}

/// A card as it comes back from `data.json`.
fn stored(card: &DataCard) -> DataCard {
    serde_json::from_str(&serde_json::to_string(card).expect("JSON")).expect("a card")
}

const NONE: &str = "validation = \"none\"";

#[test]
fn columns_are_found_by_their_names() {
    let place = Place::new(&[("t.csv", "x,y,kind\n1,2,a\n3,4,b\n"), ("v.csv", "kind,more,y,x\nb,?,20,10\n")]);
    let loaded = place.load("validation = \"v.csv\"").unwrap();
    assert_eq!(inputs(loaded.validation.as_deref().unwrap()), [10.0, 20.0]);
    let (config, card) = (place.config(NONE), stored(&loaded.card));
    assert_eq!(card, loaded.card);
    assert_eq!(config.data.read_inputs(&place.path("v.csv"), &card).unwrap().as_f32().unwrap(), [10.0, 20.0]);
    let other = config.data.read_other(&place.path("v.csv"), &card).unwrap();
    assert_eq!(inputs(other.as_ref()), [10.0, 20.0]);
    assert_eq!(other.all_targets().unwrap().as_u32().unwrap(), [1]);
    // The training's own file, after somebody has changed the order of its columns.
    place.write("t.csv", "kind,y,x\na,2,1\nb,4,3\n");
    let again = config.data.load_as(0, &config.model.loss, Some(&card)).unwrap();
    assert_eq!((inputs(again.train.as_ref()), &again.card), (vec![1.0, 2.0, 3.0, 4.0], &card));

    for (text, message) in [
        ("x,kind\n1,a\n", "there is no column 'y', which the run was trained on; the columns are 'x', 'kind'"),
        ("x,Y,kind\n1,2,a\n", "did you mean 'Y'?"),
        ("1,2,a\n3,4,b\n", "the first line must hold the columns' names"),
    ] {
        place.write("v.csv", text);
        let predict = config.data.read_inputs(&place.path("v.csv"), &card).unwrap_err().to_string();
        assert!(predict.contains("v.csv") && predict.contains(message), "{predict}");
        assert!(config.data.read_other(&place.path("v.csv"), &card).is_err(), "{text}");
        assert!(place.load("validation = \"v.csv\"").is_err(), "{text}");
    }
    place.write("v.csv", "x,y\n1,2\n");
    let eval = config.data.read_other(&place.path("v.csv"), &card).map(|data| data.len()).unwrap_err().to_string();
    assert!(eval.contains("there is no label column 'kind'"), "{eval}");
}

/// Two columns of one name are those two, from left to right.
#[test]
fn columns_of_one_name_keep_their_order() {
    let place = Place::new(&[("t.csv", "x,x,kind\n1,2,a\n3,4,b\n"), ("v.csv", "kind,x,z,x\nb,1,2,3\n")]);
    let loaded = place.load("validation = \"v.csv\"").unwrap();
    assert_eq!(inputs(loaded.validation.as_deref().unwrap()), [1.0, 3.0]);
}

#[test]
fn columns_without_names_are_counted() {
    let place = Place::new(&[("t.csv", "1,2,a\n3,4,b\n"), ("v.csv", "10,20\n")]);
    let config = place.config(&format!("{NONE}\nheader = false"));
    let card = stored(&config.data.load(0, &config.model.loss).unwrap().card);
    let read = |name: &str| config.data.read_inputs(&place.path(name), &card);
    assert_eq!(read("v.csv").unwrap().as_f32().unwrap(), [10.0, 20.0]);
    assert_eq!(read("t.csv").unwrap().as_f32().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    place.write("v.csv", "1,2,3,a\n");
    assert!(read("v.csv").unwrap_err().to_string().contains("v.csv: expected 2 columns"));
    let error = config.data.read_other(&place.path("v.csv"), &card).map(|data| data.len()).unwrap_err().to_string();
    assert!(error.contains("v.csv: a sample of shape [2] needs 2 feature columns, got 3"), "{error}");
}

/// What an earlier everygpu has written has no names: columns are taken as they stand, and classes keep their order.
#[test]
fn older_runs_are_read_as_they_were() {
    let place = Place::new(&[("t.csv", "x,y,kind\n1,2,2.0\n3,4,10.0\n"), ("v.csv", "y,x\n5,6\n")]);
    let card: DataCard = serde_json::from_str(
        r#"{"input":[2],"target":[],"classes":["10.0","2.0"],"normalizer":{"kind":"scale","factor":2.0}}"#,
    )
    .unwrap();
    let config = place.config(NONE);
    assert_eq!(config.data.read_inputs(&place.path("v.csv"), &card).unwrap().as_f32().unwrap(), [10.0, 12.0]);
    let loaded = config.data.load_as(0, &config.model.loss, Some(&card)).unwrap();
    assert_eq!(classes(&loaded), "10.0 2.0");
    assert_eq!(loaded.train.all_targets().unwrap().as_u32().unwrap(), [1, 0]);
}

#[test]
fn a_quote_that_is_not_closed_is_an_error_where_it_opens() {
    let rows = |quote: &str| format!("x,y,kind\n1,2,a\n3,4,{quote}b\n{}", "5,6,a\n".repeat(20));
    let place = Place::new(&[("t.csv", &rows("\""))]);
    let error = place.csv().unwrap_err().to_string();
    assert!(error.ends_with("t.csv:3: column 3: the quote that opens here is not closed"), "{error}");
    place.write("t.csv", &rows("\"b\" "));
    let error = place.csv().unwrap_err().to_string();
    assert!(
        error.contains("t.csv:3: column 3: the quote that opens here closes in line 3, with text behind it"),
        "{error}"
    );
    // One more quote further down closes it: there is text behind that.
    place.write("t.csv", &format!("{}7,8,\"a\"\n", rows("\"")));
    let error = place.csv().unwrap_err().to_string();
    assert!(
        error.contains("t.csv:3: column 3: the quote that opens here closes in line 24, with text behind it"),
        "{error}"
    );
    place.write("t.csv", "\"x\",y,kind\r\n1,2,\"a \"\"b\"\" c\"\r\n3,4,5\" pipe\r\n");
    assert_eq!(place.csv().unwrap().classes().unwrap(), ["5\" pipe", "a \"b\" c"]);
}

#[test]
fn quoted_cells_may_have_spaces_around() {
    let text = "\"x\", \"y\", \"label\"\n1, 2, \"a, b\"\n 3 ,\t\"4\" , \"c\"  \n";
    let place = Place::new(&[("t.csv", text)]);
    let data = place.csv().unwrap();
    assert_eq!((inputs(&data), data.classes().unwrap()), (vec![1.0, 2.0, 3.0, 4.0], &["a, b".into(), "c".into()][..]));
    assert!(place.load(&format!("{NONE}\nlabel = \"label\"")).is_ok());
}

#[test]
fn labels_that_are_all_numbers_have_their_order() {
    let ordered = |labels: &[&str]| {
        let rows: String = labels.iter().map(|label| format!("1,{label}\n")).collect();
        classes(&Place::new(&[("t.csv", &format!("x,y\n{rows}"))]).load(NONE).unwrap())
    };
    assert_eq!(ordered(&["10.0", "11.0", "2.0", "0.0", "1.0"]), "0.0 1.0 2.0 10.0 11.0");
    assert_eq!(ordered(&["1e1", "9", "-0.5"]), "-0.5 9 1e1");
    assert_eq!(
        ordered(&["100000000000000000001", "100000000000000000000", "3"]),
        "3 100000000000000000000 100000000000000000001"
    );
    assert_eq!(ordered(&["10.0", "9.0", "inf"]), "10.0 9.0 inf");
    assert_eq!(ordered(&["10", "9", "x"]), "10 9 x");
}

#[test]
fn values_that_float32_cannot_tell_apart_keep_their_difference() {
    let table =
        |from: u64| (0..100).map(|k| format!("{},{k},{}\n", from + k, ["a", "b"][k as usize % 2])).collect::<String>();
    let place = Place::new(&[("t.csv", &format!("time,k,kind\n{}", table(1_700_000_000)))]);
    let loaded = place.load(&format!("{NONE}\nscale = \"standardize\"")).unwrap();
    let values = inputs(loaded.train.as_ref());
    assert!(values.chunks(2).all(|row| (row[0] - row[1]).abs() < 1e-6), "{values:?}");
    // The same in files that come later.
    place.write("p.csv", "k,time\n7,1700000007\n");
    let config = place.config(&format!("{NONE}\nscale = \"standardize\""));
    let row = config.data.read_inputs(&place.path("p.csv"), &stored(&loaded.card)).unwrap();
    assert!((row.as_f32().unwrap()[0] - values[14]).abs() < 1e-6);
    // Where nothing takes the mean off, the column is named.
    for keys in [NONE.to_owned(), format!("{NONE}\nscale = \"max\"")] {
        let error = place.load(&keys).unwrap_err().to_string();
        assert!(error.contains("t.csv: column 1: float32 cannot tell its values apart"), "{error}");
        assert!(error.contains("data.scale = \"standardize\"") && error.contains("(column 'time')"), "{error}");
    }
    place.write(
        "t.csv",
        &format!("k,kind,time\n{}", (0..100).map(|k| format!("{k},0,{}\n", 1_700_000_000 + k)).collect::<String>()),
    );
    let error = place.load(&format!("{NONE}\nregression = true\nscale = \"standardize\"")).unwrap_err().to_string();
    assert!(error.contains("t.csv: column 3: float32 cannot tell") && !error.contains("data.scale"), "{error}");
}

/// What float32 can tell apart is what it was, bit by bit.
#[test]
fn other_columns_are_read_as_before() {
    let place = Place::new(&[("t.csv", "x,y\n0.1,a\n0.30000001192092895,b\n123456.789,a\n")]);
    let loaded = place.load(&format!("{NONE}\nscale = \"none\"")).unwrap();
    assert_eq!(
        inputs(loaded.train.as_ref()),
        ["0.1", "0.30000001192092895", "123456.789"].map(|v| v.parse::<f32>().unwrap())
    );
}
