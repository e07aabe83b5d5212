package pumice

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// tokenAge is the time after which a file of a token is read again.
const tokenAge = 10 * time.Second

// fileToken sends the token in a file with each call. The file is read again from time to time, so that a new token counts
// without a restart. While it cannot be read, the last token is sent.
type fileToken struct {
	path string
	// Without TLS a token goes to this machine only.
	local bool

	mutex sync.Mutex
	token string
	read  time.Time
}

var _ credentials.PerRPCCredentials = (*fileToken)(nil)

// newFileToken reads the token once, so that a wrong path is told at once.
func newFileToken(path, address string) (*fileToken, error) {
	made := &fileToken{path: path, local: isLocal(address)}
	_, err := made.current(time.Now())
	return made, err
}

// GetRequestMetadata is called by gRPC for each call.
func (file *fileToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := file.current(time.Now())
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity makes gRPC refuse a connection on which others could read the token.
func (file *fileToken) RequireTransportSecurity() bool {
	return !file.local
}

func (file *fileToken) current(now time.Time) (string, error) {
	file.mutex.Lock()
	defer file.mutex.Unlock()
	if file.token != "" && now.Sub(file.read) < tokenAge {
		return file.token, nil
	}
	file.read = now
	text, err := os.ReadFile(file.path)
	token := strings.TrimSpace(string(text))
	switch {
	case err == nil && token != "":
		file.token = token
	case file.token != "":
	case err != nil:
		return "", fmt.Errorf("Options.TokenFile: %w", err)
	default:
		return "", fmt.Errorf("Options.TokenFile: %s has no token", file.path)
	}
	return file.token, nil
}

// isLocal reports whether an address, as gRPC takes it, is on this machine.
func isLocal(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
