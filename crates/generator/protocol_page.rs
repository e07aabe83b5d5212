//! Page of the protocol: each call, message, field and value with its comment.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use prost_types::field_descriptor_proto::Label;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, MessageOptions,
    ServiceDescriptorProto,
};

/// Numbers of the parts of a file in the paths of its comments, by the protocol of descriptors.
const MESSAGES: i32 = 4;
const ENUMS: i32 = 5;
const SERVICES: i32 = 6;
/// Numbers of the parts of a message, an enum and a service.
const FIELDS: i32 = 2;
const INNER_MESSAGES: i32 = 3;
const INNER_ENUMS: i32 = 4;
const VALUES: i32 = 2;
const METHODS: i32 = 2;

const HEAD: &str = "# The protocol

Each call, message and field of `pumice.v1`, from the comments of `proto/pumice/v1/`. [Every call](rpc.md) has a command for each call.

<!-- protocol: generated -->
";

/// Page of all files.
pub(crate) fn page(files: &[FileDescriptorProto]) -> String {
    let mut services = String::new();
    // By name: a reader comes from a link, or looks a name up.
    let mut types = BTreeMap::new();
    for file in files.iter().filter(|file| file.package() == "pumice.v1") {
        let comments = FileComments::of(file);
        for (index, service) in (0..).zip(&file.service) {
            services.push_str(&service_section(&comments, &[SERVICES, index], service));
        }
        for (index, message) in (0..).zip(&file.message_type) {
            add_message(&mut types, &comments, &[MESSAGES, index], message, "");
        }
        for (index, values) in (0..).zip(&file.enum_type) {
            add_enum(&mut types, &comments, &[ENUMS, index], values, "");
        }
    }
    let sections: Vec<String> = types.into_values().collect();
    let sections = sections.concat();
    format!("{HEAD}{services}\n## Messages and values\n{sections}\n<!-- protocol: end -->\n")
}

/// Comments of a file by path.
struct FileComments<'f>(BTreeMap<&'f [i32], &'f str>);

impl<'f> FileComments<'f> {
    fn of(file: &'f FileDescriptorProto) -> Self {
        let all = file.source_code_info.iter().flat_map(|info| &info.location);
        let commented = all.filter_map(|place| Some((place.path.as_slice(), place.leading_comments.as_deref()?)));
        Self(commented.collect())
    }

    /// Paragraphs of the comment at a path.
    fn paragraphs(&self, path: &[i32]) -> Vec<String> {
        let text = self.0.get(path).copied().unwrap_or_default();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let paragraphs = lines.split(|line| line.is_empty());
        paragraphs
            .map(|lines| lines.join(" "))
            .filter(|text| !text.is_empty())
            .collect()
    }

    /// Comment at a path, for a cell of a table.
    fn cell(&self, path: &[i32]) -> String {
        self.paragraphs(path).join(" ").replace('|', "\\|")
    }
}

fn inside(path: &[i32], part: i32, index: i32) -> Vec<i32> {
    [path, &[part, index]].concat()
}

fn service_section(comments: &FileComments<'_>, path: &[i32], service: &ServiceDescriptorProto) -> String {
    let mut text = format!(
        "\n## {}\n\n{}\n\n",
        service.name(),
        comments.paragraphs(path).join("\n\n")
    );
    text.push_str("| Call | Request | Response | Meaning |\n|---|---|---|---|\n");
    for (index, method) in (0..).zip(&service.method) {
        let stream = |is_stream: bool| if is_stream { "stream of " } else { "" };
        let row = format!(
            "| `{}` | {}{} | {}{} | {} |\n",
            method.name(),
            stream(method.client_streaming()),
            linked(method.input_type()),
            stream(method.server_streaming()),
            linked(method.output_type()),
            comments.cell(&inside(path, METHODS, index))
        );
        text.push_str(&row);
    }
    text
}

fn add_message(
    types: &mut BTreeMap<String, String>,
    comments: &FileComments<'_>,
    path: &[i32],
    message: &DescriptorProto,
    outer: &str,
) {
    let is_entry = |message: &DescriptorProto| message.options.as_ref().is_some_and(MessageOptions::map_entry);
    let name = format!("{outer}{}", message.name());
    let mut text = format!("\n### {name}\n\n{}\n\n", comments.paragraphs(path).join("\n\n"));
    if !message.field.is_empty() {
        text.push_str("| Field | Type | Meaning |\n|---|---|---|\n");
    }
    for (index, field) in (0..).zip(&message.field) {
        let entry = message
            .nested_type
            .iter()
            .find(|own| is_entry(own) && field.type_name().ends_with(&format!(".{}", own.name())));
        let row = format!(
            "| `{}` | {} | {} |\n",
            field.name(),
            field_type(field, entry, message),
            comments.cell(&inside(path, FIELDS, index))
        );
        text.push_str(&row);
    }
    for (index, inner) in (0..).zip(&message.nested_type) {
        if !is_entry(inner) {
            add_message(
                types,
                comments,
                &inside(path, INNER_MESSAGES, index),
                inner,
                &format!("{name}."),
            );
        }
    }
    for (index, values) in (0..).zip(&message.enum_type) {
        add_enum(
            types,
            comments,
            &inside(path, INNER_ENUMS, index),
            values,
            &format!("{name}."),
        );
    }
    types.insert(name, text);
}

fn add_enum(
    types: &mut BTreeMap<String, String>,
    comments: &FileComments<'_>,
    path: &[i32],
    values: &EnumDescriptorProto,
    outer: &str,
) {
    let name = format!("{outer}{}", values.name());
    let mut text = format!("\n### {name}\n\n{}\n\n", comments.paragraphs(path).join("\n\n"));
    text.push_str("| Value | Number | Meaning |\n|---|---|---|\n");
    for (index, value) in (0..).zip(&values.value) {
        let meaning = comments.cell(&inside(path, VALUES, index));
        let written = writeln!(text, "| `{}` | {} | {meaning} |", value.name(), value.number());
        debug_assert!(written.is_ok(), "a text takes all");
    }
    types.insert(name, text);
}

/// Type of a field, with the choice that it is of.
fn field_type(field: &FieldDescriptorProto, entry: Option<&DescriptorProto>, message: &DescriptorProto) -> String {
    let own = match entry.map(|entry| entry.field.as_slice()) {
        Some([key, value]) => format!("map of {} to {}", value_type(key), value_type(value)),
        Some(_) | None if field.label() == Label::Repeated => format!("list of {}", value_type(field)),
        Some(_) | None if field.proto3_optional() => format!("optional {}", value_type(field)),
        Some(_) | None => value_type(field),
    };
    let choice = field.oneof_index.filter(|_| !field.proto3_optional());
    let choice = choice.and_then(|index| message.oneof_decl.get(usize::try_from(index).ok()?));
    choice.map_or_else(|| own.clone(), |choice| format!("{own}, one of `{}`", choice.name()))
}

fn value_type(field: &FieldDescriptorProto) -> String {
    if field.type_name.is_some() {
        return linked(field.type_name());
    }
    field.r#type().as_str_name().trim_start_matches("TYPE_").to_lowercase()
}

/// Name of a type, with a link to its section if it is one of the protocol.
fn linked(full_name: &str) -> String {
    match full_name.strip_prefix(".pumice.v1.") {
        Some(name) => format!("[{name}](#{})", name.to_lowercase().replace('.', "")),
        None => format!("`{}`", full_name.trim_start_matches('.')),
    }
}
