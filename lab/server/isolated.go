package server

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync"
)

// outside are the addresses beyond an isolated lab that its hosts and machines tried to reach.
type outside struct {
	mu    sync.Mutex
	tried []string
}

// reach returns why somebody in the lab does not reach a URL or a host.
func (o *outside) reach(who, address string) error {
	host := address
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		host = u.Hostname()
	}

	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() {
		return nil
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	if attempt := who + ": " + host; !slices.Contains(o.tried, attempt) {
		o.tried = append(o.tried, attempt)
	}

	return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
}

// Outside returns who in an isolated lab tried to reach what is not in it, as machine: host.
func (s *Server) Outside() []string {
	s.outside.mu.Lock()
	defer s.outside.mu.Unlock()

	return slices.Clone(s.outside.tried)
}

// reachOfMachines returns what machines reach; nil = everything.
func (s *Server) reachOfMachines() func(machine, address string) error {
	if !s.o.Isolated {
		return nil
	}

	return s.outside.reach
}

// reachOfHosts returns why hosts do not reach a URL.
func (s *Server) reachOfHosts(address string) error {
	if !s.o.Isolated {
		return nil
	}

	if err := s.outside.reach("a host", address); err != nil {
		return fmt.Errorf("unable to get %s: %w", address, err)
	}

	return nil
}
