//! Pictures of plugins in the reference: each is below the policy that its numbers are from.

use super::{page, root};

/// Policy of a file of cases, or of a request that sends the cluster and its time.
fn example_policy(plugin: &str) -> String {
    let request = root().join(format!("examples/time/{plugin}.json"));
    if request.exists() {
        let request: serde_json::Value = serde_json::from_slice(&std::fs::read(request).unwrap()).unwrap();
        let document = &request["against"]["inline"]["policyDocument"];
        return document.as_str().unwrap().to_owned();
    }
    let cases = page(&format!("examples/tests/plugins/{plugin}.yaml"));
    let (_, block) = cases.split_once("\ndocument: |\n").unwrap();
    let lines = block.lines().map_while(|line| line.strip_prefix("  "));
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn the_numbers_of_each_picture_are_from_the_policy_above_it() {
    let page = page("docs/policy.md");
    let mut compared = 0;
    for section in page.split("\n## `").skip(1) {
        let (plugin, text) = section.split_once('`').unwrap();
        let blocks: Vec<&str> = text.split("```").skip(1).step_by(2).collect();
        let example = blocks.iter().position(|block| block.starts_with("yaml\n"));
        let example = example.unwrap_or_else(|| panic!("{plugin} has no example"));
        assert_eq!(blocks[example], format!("yaml\n{}", example_policy(plugin)), "{plugin}");
        assert!(blocks[example + 1].starts_with("text\n"), "{plugin} has no picture");
        compared += 1;
    }
    assert!(compared > 20, "{compared}");
}
