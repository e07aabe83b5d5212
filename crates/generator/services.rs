//! Code of services: clients and servers whose methods are calls of bytes, so that what tonic does for a call is compiled once.

use prost_build::{Comments, Method, Service, ServiceGenerator};

/// Comments as documentation.
fn documented(comments: &Comments) -> String {
    let mut text = String::new();
    comments.append_with_indent(0, &mut text);
    text
}

fn is_stream(method: &Method) -> bool {
    method.client_streaming || method.server_streaming
}

/// Server side of the services: the name of each, and the table of its methods, which `ServerContext` has.
pub(crate) struct Servers;

impl ServiceGenerator for Servers {
    fn generate(&mut self, service: Service, code: &mut String) {
        let Service {
            name,
            package,
            proto_name,
            methods,
            ..
        } = &service;
        let name = name.trim_end_matches("Service");
        let (constant, function) = (name.to_uppercase(), name.to_lowercase());
        let service_name = format!("{package}.{proto_name}");
        let table: String = methods.iter().map(table_row).collect();
        let served = format!(
            "/// Name of the service.
            pub(in crate::server) const {constant}_SERVICE: &str = \"{service_name}\";
            /// Serves a call of the service.
            pub(in crate::server) fn {function}_service(edge: Arc<ServerContext>, call: ServiceCall) -> CallFuture {{
                match call.method() {{
                    {table}
                    _ => call.unknown(),
                }}
            }}\n"
        );
        code.push_str(&served);
    }

    fn finalize_package(&mut self, _: &str, code: &mut String) {
        code.push_str("use std::sync::Arc;\nuse crate::server::{ServerContext, rpc::{CallFuture, ServiceCall}};\n");
    }
}

fn table_row(method: &Method) -> String {
    let Method { name, proto_name, .. } = method;
    let kind = if is_stream(method) { "streaming" } else { "unary" };
    format!("\"{proto_name}\" => call.{kind}(edge, ServerContext::{name}),\n")
}

/// Clients of the services.
pub(crate) struct Clients;

impl ServiceGenerator for Clients {
    fn generate(&mut self, service: Service, code: &mut String) {
        let Service {
            name,
            package,
            proto_name,
            ..
        } = &service;
        let documentation = documented(&service.comments);
        let service_name = format!("{package}.{proto_name}");
        let methods: String = service
            .methods
            .iter()
            .map(|method| called_method(&service_name, method))
            .collect();
        let called = format!(
            "{documentation}#[derive(Debug, Clone, Copy)]
            pub enum {name} {{}}
            /// Client of [`{name}`].
            pub type {name}Client<T> = crate::rpc::ServiceClient<T, {name}>;
            impl<T: crate::rpc::CallService> {name}Client<T> {{
                {methods}
            }}\n"
        );
        code.push_str(&called);
    }
}

fn called_method(service_name: &str, method: &Method) -> String {
    let Method {
        name,
        proto_name,
        input_type,
        output_type,
        comments,
        ..
    } = method;
    let documentation = documented(comments);
    let (call, request, response) = if is_stream(method) {
        (
            "streaming",
            format!("tonic::IntoStreamingRequest<Message = {input_type}>"),
            format!("tonic::Streaming<{output_type}>"),
        )
    } else {
        (
            "unary",
            format!("tonic::IntoRequest<{input_type}>"),
            output_type.clone(),
        )
    };
    format!(
        "{documentation}pub async fn {name}(&mut self, request: impl {request}) -> Result<tonic::Response<{response}>, tonic::Status> {{
            let method = crate::rpc::RpcMethod::new(\"{service_name}\", \"{proto_name}\", \"/{service_name}/{proto_name}\");
            self.{call}(method, request).await
        }}\n"
    )
}
