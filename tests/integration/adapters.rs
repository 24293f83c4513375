//! Which adapters a choice names.

use everygpu::prelude::*;

#[test]
fn adapters_come_in_the_order_in_which_they_are_named_each_once() {
    let adapters = Adapters::discover().unwrap();
    let last = adapters.len() - 1;
    let indices = |choice: &str| adapters.select(choice).unwrap().iter().map(|a| a.index).collect::<Vec<_>>();
    assert_eq!(indices("all"), (0..=last).collect::<Vec<_>>());
    assert_eq!(indices(&format!("{last},all,0")), std::iter::once(last).chain(0..last).collect::<Vec<_>>());
}

#[test]
fn a_word_that_names_no_adapter_is_an_error_that_lists_them() {
    let adapters = Adapters::discover().unwrap();
    let error = adapters.select("0,voodoo").unwrap_err().to_string();
    let name = adapters.iter().next().unwrap().name();
    assert!(error.contains("voodoo") && error.contains(&format!("0 ({name})")), "{error}");
}
