package pumice

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// DefaultTarget is the gRPC address of a server that was started without options.
const DefaultTarget = "127.0.0.1:7461"

// largestResponse bounds a response in bytes: listings and scores of whole clusters are large.
const largestResponse = 256 << 20

// defaultPort is the port of a target that has none.
const defaultPort = "7461"

// Flow-control windows in bytes, of one response and of all responses of a connection. The server has the same for
// requests.
const (
	streamWindow     = 4 << 20
	connectionWindow = 8 << 20
)

// Client calls the three services of a server, or of several that are replicas of each other: then of the first that works,
// in the order of their addresses. It is safe to use from several goroutines.
type Client struct {
	// target is what the caller gave: one address, or several.
	target  string
	options Options
	servers *serverList
	circuit *breaker
	// life ends with Close, and the heartbeats of feeds with it.
	life context.Context
	end  context.CancelFunc

	feedsMutex sync.Mutex
	feeds      []*Feed

	tableMutex sync.Mutex
	table      NodeTable
}

// Dial makes a client of HOST:PORT, HOST (port 7461), http://…, https://…, unix:PATH or the path of a socket, or of several of
// them, with commas between, in the order of preference. The first call connects.
func Dial(target string, options Options) (*Client, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	servers, err := connect(target, &options)
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	client := &Client{
		life: life, end: end, target: target, options: options,
		circuit: &breaker{after: options.BreakAfter, pause: options.BreakFor, now: time.Now, changed: options.Metrics.Circuit},
	}
	if len(servers) == 1 {
		client.target = servers[0].target
	}
	client.servers = &serverList{
		all: servers, current: servers[0], restored: true, pause: options.ReturnAfter, now: time.Now, life: life,
		changed: client.uses, restores: client.restoreFeeds, isServing: isServing,
	}
	options.Metrics.InUse(servers[0].target, "", "")
	return client, nil
}

// uses reports that another address is in use.
func (client *Client) uses(now, before *server, reason string) {
	client.options.Metrics.InUse(now.target, before.target, reason)
	client.options.Logger.Warn("Pumice is asked at another address", "address", now.target, "before", before.target, "reason", reason)
}

// address is a target in the form that gRPC takes.
func address(target string) (string, error) {
	host, secure := strings.CutPrefix(target, "https://")
	host, plain := strings.CutPrefix(host, "http://")
	host = strings.TrimSuffix(host, "/")
	switch {
	case host == "":
		return "", fmt.Errorf("target %q: the host is missing; give HOST:PORT, https://HOST, unix:PATH or the path of a socket", target)
	case strings.HasPrefix(host, "/"):
		return "unix:" + host, nil
	case strings.Contains(host, ":"):
		return host, nil
	case secure:
		return host + ":443", nil
	case plain:
		return host + ":80", nil
	}
	return host + ":" + defaultPort, nil
}

// Close closes the connections, and ends the heartbeats of the client's feeds.
func (client *Client) Close() error {
	client.end()
	return client.servers.close()
}

// Address returns the address that is in use, as gRPC takes it.
func (client *Client) Address() string {
	return client.servers.inUse().target
}

// Addresses returns all addresses, in the order of preference.
func (client *Client) Addresses() (list []string) {
	for _, server := range client.servers.all {
		list = append(list, server.target)
	}
	return list
}

// Connection returns the connection to the address that is in use, for calls that this library does not wrap.
func (client *Client) Connection() *grpc.ClientConn {
	return client.servers.inUse().connection
}
