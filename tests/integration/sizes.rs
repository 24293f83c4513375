//! A kernel that is compiled for one micro-batch serves those of other sizes.

use std::collections::BTreeMap;
use std::sync::Arc;

use everygpu::gpu::{Duty, Engine};
use everygpu::kernel::{Kernel, Target, Tiling};
use everygpu::nn::Sequential;
use everygpu::nn::layers::{BatchNorm, MeanPositions, Recurrent};
use everygpu::nn::models::{Autoencoder, Gpt, MobileNet, Norm, ResNet, Vit, lenet, mlp};
use everygpu::plan::{Layout, Plan, Storage};
use everygpu::train::Task;

use crate::training::*;

/// Tasks that hold all ready models and the kinds of layers that ops of their own belong to.
fn tasks() -> Vec<(&'static str, Task)> {
    let image = [1, 12, 12];
    let class = Task::classification;
    let small = ResNet { stages: vec![1, 1], width: 8, norm: Norm::Batch(4), ..ResNet::small(8, 3).unwrap() };
    let gpt = Gpt { dropout: 0.05, ..Gpt::new(7, 6, 16, 2, 2) };
    let rotary = Gpt { tied: false, rotary: Some(100.0), bias: false, ..gpt };
    let gru = Sequential::new([9, 4]).layer(Recurrent { layers: 2, ..Recurrent::gru(8) }).linear(3);
    let lstm = Sequential::new([9, 4]).layer(Recurrent::lstm(8)).linear(3);
    vec![
        ("mlp", class(mlp(image, &[300, 65], 10))),
        ("lenet", class(lenet(image, 3))),
        ("resnet", class(small.build(image))),
        ("bottleneck", class(ResNet { bottleneck: true, ..small.norm(Norm::Group(2)) }.build(image))),
        ("mobilenet", class(MobileNet { width: 0.125, norm: Norm::Group(2), ..MobileNet::new(3) }.build(image))),
        ("vit", class(Vit { dropout: 0.05, ..Vit::new(3, 4, 16, 2, 2) }.build(image).unwrap())),
        ("autoencoder", Task::regression(Autoencoder::new(&[4, 8]).build([1, 8, 8]).unwrap(), [1, 8, 8])),
        ("gpt", class(gpt.build().unwrap().layer(MeanPositions).linear(3))),
        ("rotary", class(rotary.build().unwrap().layer(MeanPositions).linear(3))),
        ("gru", class(gru)),
        ("lstm", class(lstm)),
        ("normed", class(Sequential::new([12]).linear(8).layer(BatchNorm::of(4)).relu().dropout(0.3).linear(3))),
    ]
}

/// The kernels of `task`'s training and evaluation on micro-batches of `rows`, by their source.
fn kernels(task: &Task, rows: usize, target: &Target) -> BTreeMap<String, Kernel> {
    let of = |graph| {
        let layout = Arc::new(Layout::new(&graph, target).unwrap());
        let plan = Plan::new(&graph, layout, target).unwrap();
        plan.dispatches.into_iter().map(|dispatch| (dispatch.kernel.source(), dispatch.kernel))
    };
    of(task.training(rows).unwrap()).chain(of(task.evaluation(rows).unwrap())).collect()
}

#[test]
fn no_kernel_is_compiled_for_another_number_of_rows() {
    let mut new: Vec<String> = Vec::new();
    for tiling in [Tiling::Registers, Tiling::Workgroup] {
        let target = Target { tiling, ..Target::default() };
        for (name, task) in tasks() {
            let mut known = kernels(&task, 43, &target);
            for rows in [44, 200] {
                let other = kernels(&task, rows, &target);
                // Sums that need no parts at 43 rows may at 200: one kernel adds the parts of all of them.
                let adds = |kernel: &Kernel| kernel.label() == "sum_parts";
                let unknown = other.iter().filter(|(source, kernel)| !known.contains_key(*source) && !adds(kernel));
                let told =
                    |(_, k): (_, &Kernel)| format!("{name}, {tiling:?}, {rows} rows: {} {:?}", k.label(), k.constants);
                new.extend(unknown.map(told));
                known.extend(other);
            }
        }
    }
    assert!(new.is_empty(), "kernels of their own:\n{}", new.join("\n"));
}

#[test]
fn a_device_compiles_nothing_when_the_split_moves() {
    let task = Task::classification(lenet([1, 12, 12], 3));
    for adapter in adapters() {
        let device = open(&adapter, None);
        let layout = Arc::new(Layout::new(&task.training(1).unwrap(), device.target()).unwrap());
        let storage = Storage::new(&layout, task.statistics().len(), true, false);
        let engine = Engine::new(device.clone(), &storage, &Duty::Follower).unwrap();
        let plan = |rows| Arc::new(Plan::new(&task.training(rows).unwrap(), layout.clone(), device.target()).unwrap());
        engine.compile(plan(43)).unwrap();
        let compiled = device.compiled();
        assert!(compiled > 5, "{}: {compiled} kernels", adapter.label());
        for rows in [44, 200] {
            engine.compile(plan(rows)).unwrap();
            assert_eq!(device.compiled(), compiled, "{}: {rows} rows", adapter.label());
        }
    }
}
