//! Commits of placements that share devices.

use std::sync::Arc;

use super::commit_fixture::{CommitFixture, machine, record};
use super::commit_tests::rejections;
use crate::*;
use pumice_engine::cycle::{SessionChange, TaskPlacement};
use pumice_engine::model::constraints::{DeviceRequest, NodeDevices, NodeProperties, PodConstraints};
use pumice_engine::model::{NodeRecord, TaskRecord, TaskStatus};

fn device_node() -> BatchRecord {
    let devices = NodeDevices {
        model: "T4".into(),
        count: 2,
        memory_mib: 0,
    };
    let properties = NodeProperties {
        devices: Some(devices),
        ..NodeProperties::default()
    };
    BatchRecord::Node(Arc::new(NodeRecord {
        properties: Some(Arc::new(properties)),
        ..machine("n1", "", 10_000)
    }))
}

fn sharing(name: &str, count: u32, milli: u32) -> TaskRecord {
    let mut own = record(name, "", 100);
    own.constraints = Some(Arc::new(PodConstraints {
        devices: Some(DeviceRequest {
            count,
            milli,
            ..DeviceRequest::default()
        }),
        ..PodConstraints::default()
    }));
    own
}

fn on(task: &str, devices: u64) -> SessionChange {
    SessionChange::Allocate(TaskPlacement {
        task: task.into(),
        node: "n1".into(),
        card: "".into(),
        devices,
    })
}

fn devices_of(fixture: &CommitFixture, task: &str) -> u64 {
    let state = &fixture.state.snapshot().state;
    state.tasks().get(task).unwrap().record.assigned_devices()
}

fn free(fixture: &CommitFixture) -> Vec<i32> {
    let state = &fixture.state.snapshot().state;
    state.node_by_name("n1").unwrap().free_devices(false).to_vec()
}

fn cluster() -> Vec<BatchRecord> {
    let tasks = [
        sharing("a/1", 1, 600),
        sharing("a/2", 1, 600),
        sharing("a/3", 1, 300),
        sharing("a/4", 2, 1000),
    ];
    let tasks = tasks.into_iter().map(BatchRecord::Task);
    [device_node()].into_iter().chain(tasks).collect()
}

#[tokio::test]
async fn no_two_placements_share_a_device_by_mistake() {
    let mut fixture = CommitFixture::bare().await;
    fixture.put(cluster()).await;
    let (one, two) = (fixture.open().await, fixture.open().await);
    let first = fixture.commit(&one, &[on("a/1", 0b10)], &[]).await.unwrap();
    assert_eq!(rejections(&first), []);
    assert_eq!((devices_of(&fixture, "a/1"), free(&fixture)), (0b10, vec![1000, 400]));
    let second = fixture
        .commit(&two, &[on("a/2", 0b10), on("a/3", 0b10)], &[])
        .await
        .unwrap();
    assert_eq!(rejections(&second), [("a/2".to_owned(), "DeviceTaken")]);
    assert_eq!(free(&fixture), [1000, 100]);
    let third = fixture.open().await;
    let third = fixture.commit(&third, &[on("a/4", 0b1)], &[]).await.unwrap();
    assert_eq!(rejections(&third), [("a/4".to_owned(), "DeviceCount")]);
}

#[tokio::test]
async fn devices_outlast_a_crash_and_the_report_of_the_source() {
    let mut fixture = CommitFixture::bare().await;
    fixture.put(cluster()).await;
    // Without names a task gets the tightest device that is enough.
    let session = fixture.open().await;
    fixture
        .commit(&session, &[on("a/1", 0b10), on("a/3", 0)], &[])
        .await
        .unwrap();
    assert_eq!((devices_of(&fixture, "a/3"), free(&fixture)), (0b10, vec![1000, 100]));
    fixture.crash();
    fixture.report_all(cluster()).await;
    assert_eq!((devices_of(&fixture, "a/1"), devices_of(&fixture, "a/3")), (0b10, 0b10));
    let running = TaskRecord {
        status: TaskStatus::Running,
        node: "n1".into(),
        ..sharing("a/1", 1, 600)
    };
    fixture.put(vec![BatchRecord::Task(running)]).await;
    assert!(!fixture.is_assumed("a/1"));
    assert_eq!((devices_of(&fixture, "a/1"), free(&fixture)), (0b10, vec![1000, 100]));
}
