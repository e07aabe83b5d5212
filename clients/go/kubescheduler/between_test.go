package kubescheduler

import (
	"context"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// frame is a message as it is on the wire.
type frame struct{ payload []byte }

// asIs hands messages on unread.
type asIs struct{}

func (asIs) Marshal(message any) ([]byte, error) { return message.(*frame).payload, nil }

func (asIs) Unmarshal(data []byte, message any) error {
	message.(*frame).payload = append([]byte{}, data...)
	return nil
}

func (asIs) Name() string { return "proto" }

// between stands between a client and a server, and hands on what `refuses` does not refuse. It returns its address.
func between(t *testing.T, server string, refuses func(method string) bool) string {
	t.Helper()
	onward, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(asIs{})))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hand := func(_ any, from grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(from)
		if refuses(method) {
			return status.Error(codes.Unavailable, "refused by the test")
		}
		ctx, cancel := context.WithCancel(from.Context())
		defer cancel()
		if sent, found := metadata.FromIncomingContext(ctx); found {
			ctx = metadata.NewOutgoingContext(ctx, sent)
		}
		to, err := onward.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
		if err != nil {
			return err
		}
		go func() {
			for {
				message := &frame{}
				if err := from.RecvMsg(message); err != nil {
					_ = to.CloseSend()
					return
				}
				if to.SendMsg(message) != nil {
					return
				}
			}
		}()
		for {
			message := &frame{}
			if err := to.RecvMsg(message); err == io.EOF {
				from.SetTrailer(to.Trailer())
				return nil
			} else if err != nil {
				from.SetTrailer(to.Trailer())
				return err
			}
			if err := from.SendMsg(message); err != nil {
				return err
			}
		}
	}
	made := grpc.NewServer(grpc.ForceServerCodec(asIs{}), grpc.UnknownServiceHandler(hand)) //nolint:staticcheck // the newer codec shares its buffers
	go func() { _ = made.Serve(listener) }()
	t.Cleanup(func() {
		made.Stop()
		_ = onward.Close()
	})
	return listener.Addr().String()
}
