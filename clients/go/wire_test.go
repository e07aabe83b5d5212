package pumice

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/internal/vectors"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// earlier is the protocol of the baseline: what programs of the version before speak.
func earlier(t *testing.T) *protoregistry.Files {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(vectors.Root(), "proto", "baseline.binpb"))
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := gzip.NewReader(bytes.NewReader(text)); err == nil {
		if text, err = io.ReadAll(plain); err != nil {
			t.Fatal(err)
		}
	}
	set, files := &descriptorpb.FileDescriptorSet{}, &protoregistry.Files{}
	if err := proto.Unmarshal(text, set); err != nil {
		t.Fatal(err)
	}
	// Files of Google's that the set leaves out are the same in every version.
	for left := len(set.GetFile()); left > 0; left-- {
		for _, file := range set.GetFile() {
			if _, err := files.FindFileByPath(file.GetName()); err == nil {
				continue
			}
			if made, err := protodesc.NewFile(file, both{files}); err == nil {
				if err := files.RegisterFile(made); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if _, err := files.FindFileByPath("pumice/v1/decision.proto"); err != nil {
		t.Fatal(err)
	}
	return files
}

// both looks up what the set does not have among what is compiled in.
type both struct{ files *protoregistry.Files }

// FindFileByPath finds a file.
func (both both) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if found, err := both.files.FindFileByPath(path); err == nil {
		return found, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

// FindDescriptorByName finds a message.
func (both both) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if found, err := both.files.FindDescriptorByName(name); err == nil {
		return found, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}

// methods are those of all services, by name.
func methods(files *protoregistry.Files) map[string]protoreflect.MethodDescriptor {
	list := map[string]protoreflect.MethodDescriptor{}
	files.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for service := range file.Services().Len() {
			all := file.Services().Get(service).Methods()
			for at := range all.Len() {
				list["/"+string(file.Services().Get(service).FullName())+"/"+string(all.Get(at).Name())] = all.Get(at)
			}
		}
		return true
	})
	return list
}

// older calls as a client of the version before does; the body is JSON in that version's fields.
func older(t *testing.T, client *Client, method protoreflect.MethodDescriptor, name, body string) *dynamicpb.Message {
	t.Helper()
	request, response := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
	if err := protojson.Unmarshal([]byte(body), request); err != nil {
		t.Fatal(name, err)
	}
	if err := client.Connection().Invoke(within(t), name, request, response); err != nil {
		t.Fatal(name, err)
	}
	return response
}

func TestAClientOfTheVersionBeforeGetsTheSameResults(t *testing.T) {
	client, known := loaded(t, Options{}), methods(earlier(t))
	if len(known) < 20 {
		t.Fatal(len(known))
	}
	for name, method := range known {
		if method.IsStreamingClient() {
			continue
		}
		// What is empty may be refused, but no call has gone.
		err := client.Connection().Invoke(within(t), name, dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output()))
		if status.Code(err) == codes.Unimplemented {
			t.Error(name, err)
		}
	}
	const decisions = "/pumice.v1.DecisionService/"
	ask := func(name, body string) *dynamicpb.Message {
		t.Helper()
		return older(t, client, known[decisions+name], decisions+name, body)
	}
	const task = `"tasks": [{"requests": {"items": {"cpu": "2"}}}]`
	for name, present := range map[string]func() proto.Message{
		"Filter": func() proto.Message {
			reply, err := client.Filter(within(t), &pb.FilterRequest{Tasks: []*pb.Task{{Requests: amounts("cpu", "2")}}})
			return must(t, reply.Response, err).GetResult()
		},
		"Score": func() proto.Message {
			reply, err := client.Score(within(t), &pb.ScoreRequest{Tasks: []*pb.Task{{Requests: amounts("cpu", "2")}}})
			return must(t, reply.Response, err).GetResult()
		},
	} {
		response := ask(name, "{"+task+"}")
		field := response.Descriptor().Fields().ByName("result")
		said := response.Get(field).Message().Interface()
		// The present answer, read by the version before, says the same in its fields.
		same := said.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(encoded(t, present()), same); err != nil || !proto.Equal(same, said) {
			t.Errorf("%s: %v instead of %v, %v", name, said, same, err)
		}
	}
	opened := ask("OpenSession", "{}")
	session := opened.Get(opened.Descriptor().Fields().ByName("session")).String()
	ask("Score", `{"against": {"session": {"id": "`+session+`", "changes": [{"allocate": {"task": "default/gang-0", "node": "n2"}}]}}, `+task+`}`)
	ask("Order", `{"against": {"session": {"id": "`+session+`", "after": "1"}}}`)
	ask("CloseSession", `{"session": "`+session+`"}`)
	older(t, client, known["/pumice.v1.StateService/Apply"], "/pumice.v1.StateService/Apply",
		`{"batch": {"source": "older", "sourceEpoch": "1", "sequence": "1", "kind": "BATCH_KIND_FULL_SYNC_LAST", "part": 1, "put": {"nodes": [{"name": "n9"}]}}}`)
	older(t, client, known["/pumice.v1.PolicyService/ReloadPolicy"], "/pumice.v1.PolicyService/ReloadPolicy", fmt.Sprintf(`{"document": %q}`, spread))
}

func encoded(t *testing.T, message proto.Message) []byte {
	t.Helper()
	text, err := proto.Marshal(message)
	return must(t, text, err)
}

// later adds what only a version to come knows.
func later[M proto.Message](message M) M {
	unknown := protowire.AppendTag(nil, 9_999, protowire.BytesType)
	message.ProtoReflect().SetUnknown(protowire.AppendString(unknown, "of a version to come"))
	return message
}

func TestWhatAVersionToComeSaysIsOverlooked(t *testing.T) {
	client := loaded(t, Options{})
	plain := &pb.Task{Requests: amounts("cpu", "2")}
	before, err := client.Filter(within(t), &pb.FilterRequest{Tasks: []*pb.Task{plain}})
	if err != nil {
		t.Fatal(err)
	}
	after, err := client.Filter(within(t), later(&pb.FilterRequest{
		Against: later(&pb.EvaluationRef{Target: &pb.EvaluationRef_Latest{Latest: later(&pb.LatestRef{})}}),
		Tasks:   []*pb.Task{later(&pb.Task{Requests: later(amounts("cpu", "2"))})},
	}))
	if err != nil || !proto.Equal(before.Response.GetResult(), after.Response.GetResult()) {
		t.Fatal(after, err)
	}
	// And this client overlooks what a server to come says.
	fake := &versioned{}
	reply, err := dial(t, fake.serve(t, nil), Options{}).Filter(within(t), &pb.FilterRequest{Tasks: []*pb.Task{plain}})
	if err != nil || reply.Origin != OriginService || len(reply.Response.GetResult().GetItems()) != 1 || reply.Response.GetResult().GetItems()[0].GetFitCount() != 7 {
		t.Fatal(reply, err)
	}
}

// versioned is a server of another version.
type versioned struct {
	pb.UnimplementedDecisionServiceServer
	calls atomic.Int64
}

// Filter answers with more than this version knows.
func (versioned *versioned) Filter(context.Context, *pb.FilterRequest) (*pb.FilterResponse, error) {
	return later(&pb.FilterResponse{Result: later(&pb.FilterResult{Items: []*pb.FilterItem{later(&pb.FilterItem{FitCount: 7})}})}), nil
}

// serve serves the calls that are known; nil: all.
func (versioned *versioned) serve(t *testing.T, known map[string]protoreflect.MethodDescriptor) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		versioned.calls.Add(1)
		if _, found := known[info.FullMethod]; known != nil && !found {
			return nil, status.Error(codes.Unimplemented, "")
		}
		return handler(ctx, request)
	}))
	pb.RegisterDecisionServiceServer(server, versioned)
	t.Cleanup(server.Stop)
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String()
}

// A server of the version before lacks calls: that is an error at once, and there is no fallback, for the
// service is not away.
func TestACallThatAServerLacksIsAnError(t *testing.T) {
	known := methods(earlier(t))
	delete(known, "/pumice.v1.DecisionService/Admit")
	fake := &versioned{}
	client := dial(t, fake.serve(t, known), Options{Fallback: map[Call]Fallback{CallAdmit: FailOpen}, BreakAfter: 1})
	for range 2 {
		fake.calls.Store(0)
		_, err := client.Admit(within(t), &pb.AdmitRequest{Items: []*pb.AdmitSubject{{Subject: &pb.AdmitSubject_Job{Job: &pb.Job{Name: "j"}}}}})
		var failure *Error
		if !errors.As(err, &failure) || failure.Code != codes.Unimplemented || failure.Unavailable() || fake.calls.Load() != 1 {
			t.Fatal(err, fake.calls.Load())
		}
	}
	if reply, err := client.Filter(within(t), &pb.FilterRequest{Tasks: []*pb.Task{{}}}); err != nil || reply.Origin != OriginService {
		t.Fatal(reply, err)
	}
	_, err := dial(t, fake.serve(t, known), Options{}).GetServerInfo(within(t))
	var failure *Error
	if !errors.As(err, &failure) || failure.Code != codes.Unimplemented {
		t.Fatal(err)
	}
}
