package pumice

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// outage is what a proxy does to the answers of a service.
type outage int32

const (
	pass outage = iota
	// refuse: no connection lives.
	refuse
	// hang: nothing comes back.
	hang
	// reset: the connection breaks in the middle of what comes back.
	reset
	// slow: what comes back takes longer than anybody waits.
	slow
)

func (outage outage) String() string {
	return [...]string{"pass", "refuse", "hang", "reset", "slow"}[outage]
}

// proxy stands between a client and a service.
type proxy struct {
	listener net.Listener
	service  string
	outage   atomic.Int32

	mutex sync.Mutex
	open  map[net.Conn]bool
}

func newProxy(t testing.TB, service string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	between := &proxy{listener: listener, service: service, open: map[net.Conn]bool{}}
	go between.accept()
	t.Cleanup(func() {
		_ = listener.Close()
		between.cut()
	})
	return between
}

func (between *proxy) address() string {
	return between.listener.Addr().String()
}

// set changes the outage; what is refused loses the connections that it has.
func (between *proxy) set(outage outage) {
	between.outage.Store(int32(outage))
	if outage == refuse {
		between.cut()
	}
}

func (between *proxy) now() outage {
	return outage(between.outage.Load())
}

func (between *proxy) cut() {
	between.mutex.Lock()
	defer between.mutex.Unlock()
	for connection := range between.open {
		_ = connection.Close()
	}
	clear(between.open)
}

func (between *proxy) accept() {
	for {
		caller, err := between.listener.Accept()
		if err != nil {
			return
		}
		if between.now() == refuse {
			_ = caller.Close()
			continue
		}
		service, err := net.Dial("tcp", between.service)
		if err != nil {
			_ = caller.Close()
			continue
		}
		between.mutex.Lock()
		between.open[caller], between.open[service] = true, true
		between.mutex.Unlock()
		go func() {
			_, _ = io.Copy(service, caller)
			_ = service.Close()
		}()
		go between.back(caller, service)
	}
}

// back carries answers, as the outage says.
func (between *proxy) back(caller, service net.Conn) {
	defer func() { _, _ = caller.Close(), service.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		size, err := service.Read(buffer)
		if err != nil {
			return
		}
		switch between.now() {
		case hang:
			continue
		case slow:
			for between.now() == slow {
				time.Sleep(10 * time.Millisecond)
			}
		case reset:
			_, _ = caller.Write(buffer[:size/2])
			if plain, ok := caller.(*net.TCPConn); ok {
				_ = plain.SetLinger(0)
			}
			return
		default:
		}
		if _, err := caller.Write(buffer[:size]); err != nil {
			return
		}
	}
}
