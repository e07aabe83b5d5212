package pumice

import (
	"sync"
	"time"
)

// breaker keeps callers from waiting for a service that is away: after so many calls in a row without an answer it lets
// none through for a while, and then one.
type breaker struct {
	after   int
	rest    time.Duration
	now     func() time.Time
	changed func(open bool)

	mutex  sync.Mutex
	failed int
	until  time.Time
	trying bool
}

// allow says whether a call may be made.
func (circuit *breaker) allow() bool {
	if circuit.after < 0 {
		return true
	}
	circuit.mutex.Lock()
	defer circuit.mutex.Unlock()
	if circuit.failed < circuit.after {
		return true
	}
	if circuit.trying || circuit.now().Before(circuit.until) {
		return false
	}
	circuit.trying = true
	return true
}

// answered: the service lives.
func (circuit *breaker) answered() {
	circuit.mutex.Lock()
	open := circuit.after >= 0 && circuit.failed >= circuit.after
	circuit.failed, circuit.trying = 0, false
	circuit.mutex.Unlock()
	if open {
		circuit.changed(false)
	}
}

// gaveUp: the caller ended the call itself, which says nothing of the service.
func (circuit *breaker) gaveUp() {
	circuit.mutex.Lock()
	circuit.trying = false
	circuit.mutex.Unlock()
}

// away: no answer came.
func (circuit *breaker) away() {
	circuit.mutex.Lock()
	circuit.failed++
	circuit.trying = false
	opened := circuit.failed == circuit.after
	if circuit.failed >= circuit.after {
		circuit.until = circuit.now().Add(circuit.rest)
	}
	circuit.mutex.Unlock()
	if opened {
		circuit.changed(true)
	}
}
