package pumice

import (
	"sync"
	"time"
)

// breaker stops calls to an unavailable service: after several failures in a row it permits none for a while, and then
// one.
type breaker struct {
	after   int
	pause   time.Duration
	now     func() time.Time
	changed func(open bool)

	mutex    sync.Mutex
	failures int
	until    time.Time
	probing  bool
	// cause is the message of the last failure.
	cause string
}

// allow reports whether a call may be sent.
func (circuit *breaker) allow() bool {
	if circuit.after < 0 {
		return true
	}
	circuit.mutex.Lock()
	defer circuit.mutex.Unlock()
	if circuit.failures < circuit.after {
		return true
	}
	if circuit.probing || circuit.now().Before(circuit.until) {
		return false
	}
	circuit.probing = true
	return true
}

// succeeded records that the service answered.
func (circuit *breaker) succeeded() {
	circuit.mutex.Lock()
	open := circuit.after >= 0 && circuit.failures >= circuit.after
	circuit.failures, circuit.probing = 0, false
	circuit.mutex.Unlock()
	if open {
		circuit.changed(false)
	}
}

// canceled records that the caller ended the call, which says nothing about the service.
func (circuit *breaker) canceled() {
	circuit.mutex.Lock()
	circuit.probing = false
	circuit.mutex.Unlock()
}

// lastCause is the message of the last failure.
func (circuit *breaker) lastCause() string {
	circuit.mutex.Lock()
	defer circuit.mutex.Unlock()
	return circuit.cause
}

// failed records that the service gave no answer.
func (circuit *breaker) failed(cause string) {
	circuit.mutex.Lock()
	circuit.cause = cause
	circuit.failures++
	circuit.probing = false
	opened := circuit.failures == circuit.after
	if circuit.failures >= circuit.after {
		circuit.until = circuit.now().Add(circuit.pause)
	}
	circuit.mutex.Unlock()
	if opened {
		circuit.changed(true)
	}
}
