package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"
)

// fakeLease is the Lease object of a fake cluster.
type fakeLease struct {
	guard sync.Mutex
	held  kubeLease
	noAPI error // no API server answers
	lost  int   // how many changes are made without an answer
	puts  int
}

func (f *fakeLease) lease(context.Context, string, string) (kubeLease, error) {
	f.guard.Lock()
	defer f.guard.Unlock()

	return f.held, f.noAPI
}

func (f *fakeLease) putLease(_ context.Context, _ string, l kubeLease) error {
	f.guard.Lock()
	defer f.guard.Unlock()

	switch {
	case f.noAPI != nil:
		return f.noAPI
	case l.Version != f.held.Version:
		return errors.New("409 Conflict: the object has been modified")
	}

	f.puts++
	f.held = l
	f.held.Version = strconv.Itoa(f.puts)

	if f.lost > 0 {
		f.lost--

		return errors.New("connection reset")
	}

	return nil
}

// set changes the lease as someone else does.
func (f *fakeLease) set(change func()) {
	f.guard.Lock()
	defer f.guard.Unlock()

	change()
}

func (f *fakeLease) take(holder string) {
	f.set(func() {
		f.puts++
		f.held = kubeLease{
			Version: strconv.Itoa(f.puts), Holder: holder, Acquired: time.Now(), Renewed: time.Now(), Duration: 40 * time.Second,
		}
	})
}
