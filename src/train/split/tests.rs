use super::*;

fn splitter(batch: usize, devices: usize) -> Splitter {
    Splitter::new(&Split::Speed, batch, devices, false).unwrap()
}

fn measured(batch: usize, lines: &[(f64, f64)]) -> Splitter {
    let mut splitter = splitter(batch, lines.len());
    for (index, (a, b)) in lines.iter().enumerate() {
        for rows in [4, 8, 16, 32] {
            splitter.observe(index, rows, a + b * rows as f64);
        }
    }
    splitter
}

#[test]
fn nine_samples_over_four_equal_devices_are_3_2_2_2() {
    assert_eq!(splitter(9, 4).full(), [3, 2, 2, 2]);
}

#[test]
fn two_samples_over_four_devices_leave_two_idle() {
    assert_eq!(splitter(2, 4).full(), [1, 1, 0, 0]);
    assert_eq!(splitter(64, 4).shards(2).iter().sum::<usize>(), 2);
}

#[test]
fn weights_are_proportions() {
    let splitter = Splitter::new(&Split::Weights(vec![1.0, 0.0, 3.0]), 10, 3, false).unwrap();
    assert_eq!(splitter.full(), [3, 0, 7]);
    assert!(Splitter::new(&Split::Weights(vec![1.0]), 10, 3, false).is_err());
    assert!(Split::Weights(vec![0.0, 0.0]).validate().is_err());
    assert!(Split::Weights(vec![1.0, f64::NAN]).validate().is_err());
}

#[test]
fn shards_follow_the_speeds() {
    for (lines, expected) in [
        (vec![(0.0, 1.0), (0.0, 1.0)], vec![32, 32]),
        (vec![(0.0, 1.0), (0.0, 2.0)], vec![43, 21]),
        (vec![(0.0, 1.0), (0.0, 6.0)], vec![55, 9]),
        (vec![(0.0, 1.0), (0.0, 2.0), (0.0, 4.0)], vec![37, 18, 9]),
    ] {
        let mut splitter = measured(64, &lines);
        splitter.refit(&vec![true; lines.len()], 0, 0.0);
        assert_eq!(splitter.full(), expected, "{lines:?}");
    }
}

#[test]
fn groups_stay_whole_whatever_happens_to_the_devices() {
    let mut splitter = measured(100, &[(0.0, 1.0), (0.0, 1.0), (0.0, 2.0)]).in_groups(8);
    let whole = |change: &str, splitter: &mut Splitter| {
        for samples in [100, 99, 50, 7] {
            let shards = splitter.shards(samples);
            assert_eq!(shards.iter().sum::<usize>(), samples, "{change}");
            assert!(keeps_groups(&shards, 8), "{change}: {shards:?}");
        }
    };
    whole("start", &mut splitter);
    assert_eq!(splitter.refit(&[true; 3], 0, 0.0).unwrap().after, [48, 40, 12]);
    whole("refit", &mut splitter);
    splitter.remove(1, &[true; 3]);
    whole("removed", &mut splitter);
    splitter.admit(1, &[true; 3]);
    whole("admitted", &mut splitter);
    splitter.restore(vec![8, 92, 0]).unwrap();
    assert_eq!((splitter.movable(6), splitter.movable(9)), (8, 16));
    assert_eq!(splitter.lend(2, 8), [8, 88, 4]);
    assert_eq!(splitter.lend(0, 16), [24, 76, 0]);
    let error = splitter.restore(vec![50, 0, 50]).unwrap_err().to_string();
    assert!(error.contains("cuts the groups of 8 samples"), "{error}");
}

#[test]
fn a_device_that_would_slow_the_step_gets_nothing() {
    let mut splitter = measured(64, &[(0.0, 1.0), (100.0, 1.0)]);
    assert_eq!(splitter.refit(&[true, true], 0, 0.0).unwrap().after, [64, 0]);
}

#[test]
fn a_gain_that_does_not_pay_for_the_change_changes_nothing() {
    let mut splitter = measured(64, &[(0.0, 1.0), (0.0, 3.0)]);
    assert_eq!(splitter.refit(&[true, true], 0, 50.0), None); // 96 s become 48 s
    assert!(splitter.refit(&[true, true], 0, 40.0).is_some());
}

#[test]
fn a_small_gain_changes_nothing() {
    let mut splitter = measured(64, &[(0.0, 1.0), (0.0, 1.05)]);
    assert_eq!(splitter.refit(&[true, true], 0, 0.0), None);
    assert_eq!(splitter.full(), [32, 32]);
}

#[test]
fn deterministic_and_even_splits_stay() {
    for (split, deterministic) in [(Split::Speed, true), (Split::Even, false)] {
        let mut splitter = Splitter::new(&split, 64, 2, deterministic).unwrap();
        (0..5).for_each(|_| {
            splitter.observe(0, 32, 1.0);
            splitter.observe(1, 32, 9.0);
        });
        assert_eq!(splitter.refit(&[true, true], 0, 0.0), None);
    }
}

#[test]
fn a_removed_devices_rows_go_to_the_others() {
    let mut splitter = measured(64, &[(0.0, 1.0), (0.0, 1.0), (0.0, 2.0)]);
    splitter.refit(&[true; 3], 0, 0.0);
    splitter.remove(0, &[true; 3]);
    assert_eq!(splitter.full()[0], 0);
    assert_eq!(splitter.full().iter().sum::<usize>(), 64);
}

#[test]
fn idle_devices_take_over_when_the_only_busy_one_goes() {
    let mut splitter = Splitter::new(&Split::Weights(vec![1.0, 0.0, 0.0]), 9, 3, false).unwrap();
    splitter.remove(0, &[true; 3]);
    assert_eq!(splitter.full(), [0, 5, 4]);
}

#[test]
fn fixed_and_proportional_costs_are_told_apart() {
    let splitter = measured(64, &[(3.0, 0.5), (1.0, 2.0)]);
    assert!((splitter.predict(0, 10).unwrap() - 8.0).abs() < 1e-9);
    assert!((splitter.predict(1, 10).unwrap() - 21.0).abs() < 1e-9);
}

/// Steps of the split as it is, which take `seconds` beside the devices' times.
fn step(splitter: &mut Splitter, seconds: f64) {
    (0..5).for_each(|_| splitter.observe_rest(0, seconds));
}

#[test]
fn an_exchange_that_costs_more_than_the_help_saves_is_spared() {
    // Alone, the lead takes 64 s and 1 s for the update. With the other's help it would be 56 s and the exchange.
    let mut splitter = measured(64, &[(0.0, 1.0), (0.0, 7.0)]);
    splitter.refit(&[true, true], 0, 0.0);
    assert_eq!(splitter.full(), [56, 8]);
    step(&mut splitter, 5.0);
    assert_eq!(splitter.refit(&[true, true], 0, 0.0), None, "61 s, 64 s at best alone");
    step(&mut splitter, 12.0);
    assert_eq!(splitter.refit(&[true, true], 0, 0.0).unwrap().after, [64, 0], "68 s");
    step(&mut splitter, 1.0);
    assert_eq!(splitter.refit(&[true, true], 0, 0.0), None);
    let Sharing { together, exchange, alone } = splitter.sharing(&[true, true], 0).unwrap();
    assert!((together - 68.0).abs() < 1e-9 && exchange == 12.0 && (alone - 65.0).abs() < 1e-9);
    // The lead has become slower: now the exchange is worth it.
    splitter.measure_anew(0, 64, 128.0);
    (0..3).for_each(|_| splitter.observe(0, 64, 128.0));
    assert_eq!(splitter.refit(&[true, true], 0, 0.0).unwrap().after, [50, 14], "129 s alone, 112 s together");
    assert_eq!(splitter.sharing(&[true, true], 0), None);
}

#[test]
fn an_exchange_is_tried_again_where_the_lead_alone_turns_out_slower() {
    let mut splitter = measured(64, &[(0.0, 1.0), (0.0, 7.0)]);
    splitter.refit(&[true, true], 0, 0.0);
    step(&mut splitter, 12.0);
    splitter.refit(&[true, true], 0, 0.0);
    assert_eq!(splitter.full(), [64, 0]);
    step(&mut splitter, 10.0);
    assert_eq!(splitter.refit(&[true, true], 0, 0.0).unwrap().after, [56, 8], "74 s alone, 68 s together");
}

#[test]
fn a_faster_device_than_the_lead_does_it_alone_once_it_leads() {
    let mut splitter = measured(64, &[(0.0, 7.0), (0.0, 1.0)]);
    splitter.refit(&[true, true], 0, 0.0);
    assert_eq!(splitter.full(), [8, 56]);
    step(&mut splitter, 3.0);
    assert_eq!(splitter.soloist(&[true, true], 0, |_| true), None, "59 s together, 64 s alone");
    step(&mut splitter, 12.0);
    let (device, now, then) = splitter.soloist(&[true, true], 0, |_| true).unwrap();
    assert!(device == 1 && (now - 68.0).abs() < 1e-9 && (then - 64.0).abs() < 1e-9);
    assert_eq!(splitter.soloist(&[true, true], 0, |index| index != 1), None);
    assert_eq!(splitter.soloist(&[true, false], 0, |_| true), None);
    assert_eq!(splitter.refit(&[true, true], 0, 0.0), None, "not before it leads");
    assert_eq!(splitter.refit(&[true, true], 1, 0.0).unwrap().after, [0, 64]);
}

#[test]
fn under_another_lead_the_exchange_is_measured_anew() {
    let mut splitter = measured(64, &[(0.0, 1.0), (0.0, 7.0)]);
    splitter.refit(&[true, true], 0, 0.0);
    step(&mut splitter, 12.0);
    splitter.forget_rest();
    assert_eq!(splitter.refit(&[true, true], 0, 0.0), None);
    assert_eq!(splitter.full(), [56, 8]);
}
