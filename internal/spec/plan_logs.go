package spec

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"talos-proxmox/internal/problem"
)

// CheckLogDestinations reports what cannot be the address of a server for logs, below a path.
func CheckLogDestinations(path string, destinations []string, found *problem.List) {
	p := &planner{problems: found}

	for i, text := range destinations {
		at := fmt.Sprintf("%s[%d]", path, i)
		p.checkNotEmpty(at, text, "write it as tcp://10.0.0.7:6050")

		if text != "" && !isLogDestination(text) {
			found.Add(at, text, "is not the address of a server for logs; write it as tcp://10.0.0.7:6050 or udp://logs.example.org:6050")
		} else if slices.Contains(destinations[:i], text) {
			found.Add(at, text, "is listed twice; remove one of the two")
		}
	}
}

// isLogDestination reports whether a text is a URL that Talos sends logs to: a protocol, a host and a port.
func isLogDestination(text string) bool {
	destination, err := url.Parse(text)
	if err != nil || destination.Scheme != "tcp" && destination.Scheme != "udp" {
		return false
	}

	_, noAddress := netip.ParseAddr(destination.Hostname())
	port, err := strconv.ParseUint(destination.Port(), 10, 16)

	return err == nil && port > 0 && (noAddress == nil || serverFormat.pattern.MatchString(destination.Hostname())) &&
		*destination == (url.URL{Scheme: destination.Scheme, Host: destination.Host}) &&
		destination.Host == net.JoinHostPort(destination.Hostname(), destination.Port())
}

// logAddresses returns the addresses in URLs of destinations; invalid for names.
func logAddresses(destinations []string) []netip.Addr {
	addresses := make([]netip.Addr, len(destinations))

	for i, text := range destinations {
		if destination, err := url.Parse(text); err == nil {
			addresses[i], _ = netip.ParseAddr(destination.Hostname())
		}
	}

	return addresses
}
