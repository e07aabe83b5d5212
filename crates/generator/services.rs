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

/// Server side of the services: a trait with the methods, and their table.
pub(crate) struct Servers;

impl ServiceGenerator for Servers {
    fn generate(&mut self, service: Service, code: &mut String) {
        let Service {
            name,
            package,
            proto_name,
            ..
        } = &service;
        let documentation = documented(&service.comments);
        let methods: String = service.methods.iter().map(served_method).collect();
        let service_name = format!("{package}.{proto_name}");
        let rows = service.methods.iter().map(|method| table_row(&service_name, method));
        let table: String = rows.collect();
        let served = format!(
            "{documentation}pub trait {name}: std::fmt::Debug + Send + Sync + 'static {{
                {methods}
            }}
            /// Methods of [`{name}`], by path.
            #[derive(Debug)]
            pub struct {name}Methods<T>(pub T);
            impl<T: {name}> crate::server::rpc::ServiceMethods for {name}Methods<T> {{
                const NAME: &'static str = \"{service_name}\";
                fn serve(self: std::sync::Arc<Self>, call: crate::server::rpc::ServiceCall) -> crate::server::rpc::CallFuture {{
                    match call.path() {{
                        {table}
                        _ => call.unknown(),
                    }}
                }}
            }}\n"
        );
        code.push_str(&served);
    }
}

fn served_method(method: &Method) -> String {
    let Method {
        name,
        proto_name,
        input_type,
        output_type,
        comments,
        ..
    } = method;
    let documentation = documented(comments);
    let function = |request: &str, response: &str| {
        format!(
            "{documentation}fn {name}(&self, request: tonic::Request<{request}>)
                -> impl Future<Output = Result<{response}, crate::server::status::CallError>> + Send;\n"
        )
    };
    if !is_stream(method) {
        return function(input_type, output_type);
    }
    let stream = "tonic::codegen::tokio_stream::Stream";
    let responses = format!(
        "/// Responses of [`Self::{name}`].
        type {proto_name}Stream: {stream}<Item = Result<{output_type}, tonic::Status>> + Send + 'static;\n"
    );
    let requests = format!("crate::server::rpc::RequestStream<{input_type}>");
    responses + &function(&requests, &format!("Self::{proto_name}Stream"))
}

fn table_row(service_name: &str, method: &Method) -> String {
    let Method { name, proto_name, .. } = method;
    let kind = if is_stream(method) { "streaming" } else { "unary" };
    format!(
        "\"/{service_name}/{proto_name}\" => call.{kind}(move |request| async move {{ self.0.{name}(request).await }}),\n"
    )
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
