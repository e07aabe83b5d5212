//! Records of Kubernetes objects, as JSON that the client for Go compares its own with. `PUMICE_BLESS=1` writes it anew.

use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use pumice_kubernetes::import::{AmountRules, ClusterImport};
use pumice_protocol::v1 as pb;

const OBJECTS: &str = "tests/data/constraints.json";
const RECORDS: &str = "tests/data/constraints.records.json";

fn json(cluster: &pb::Cluster) -> String {
    let pool = DescriptorPool::decode(pumice_protocol::FILE_DESCRIPTOR_SET).unwrap();
    let descriptor = pool.get_message_by_name("pumice.v1.Cluster").unwrap();
    let message = DynamicMessage::decode(descriptor, cluster.encode_to_vec().as_slice()).unwrap();
    let mut text = Vec::new();
    let mut writer = serde_json::Serializer::pretty(&mut text);
    let options = SerializeOptions::new();
    message.serialize_with_options(&mut writer, &options).unwrap();
    let sorted: serde_json::Value = serde_json::from_slice(&text).unwrap();
    serde_json::to_string_pretty(&sorted).unwrap() + "\n"
}

#[test]
fn records_of_objects_are_those_that_clients_compare_with() {
    let mut import = ClusterImport::new(AmountRules::default());
    import
        .read(OBJECTS, &std::fs::read_to_string(OBJECTS).unwrap())
        .unwrap();
    let imported = import.finish();
    assert_eq!(imported.rejected, []);
    let records = json(&imported.cluster);
    if std::env::var_os("PUMICE_BLESS").is_some() {
        std::fs::write(RECORDS, &records).unwrap();
    }
    assert_eq!(std::fs::read_to_string(RECORDS).unwrap(), records);
}
