// Package tlsprobe finds out whether a Talos machine answers at its address, and in which mode, with only a TLS
// handshake: a machine in maintenance mode requests no client certificate; a configured one does, and presents a
// certificate of its cluster's authority.
package tlsprobe

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	talosPort = 50000
	// probeTimeout limits one probe: an unused address is silent for longer than retryInterval.
	probeTimeout = 5 * time.Second
)

// Expected is the machine that should answer.
type Expected struct {
	// Authority is the certificate of its cluster's Talos authority, as PEM.
	Authority []byte
	// Configured reports whether it is a machine that was configured before: maintenance mode is then unproven.
	Configured bool
	// Fingerprint is that of its certificate in maintenance mode, as the machine's console shows it; empty = unknown.
	Fingerprint string
	// MACs are those of its cards; an answer in maintenance mode from another MAC of the local network segment is
	// unproven. Behind a router, or without MACs, nothing is checked.
	MACs []string

	arpTable string // empty = defaultARPTable
}

// defaultARPTable has the last known MAC of each IPv4 address of the local network segment (source: proc(5)).
const defaultARPTable = "/proc/net/arp"

// Answer is the result of a probe.
type Answer struct {
	// Text describes what answered, or why nothing did.
	Text string
	// Ready reports whether the machine accepts a configuration: in maintenance mode from anyone, a configured one from
	// clients of its cluster.
	Ready bool
	// Configured reports whether the machine has a configuration, of any cluster.
	Configured bool
	// Unproven reports whether it answers in maintenance mode without proof that it is the expected machine.
	Unproven bool
	// Fingerprint is that of the certificate that it presents in maintenance mode.
	Fingerprint string
	// Source is this computer's address in the connection to a machine in maintenance mode.
	Source netip.Addr
}

// Probe probes the Talos API at an address.
func Probe(ctx context.Context, address netip.Addr, expected Expected) Answer {
	return probe(ctx, netip.AddrPortFrom(address, talosPort), expected)
}

// PinnedConfig returns the TLS configuration of a client for the machine in maintenance mode that gave an answer: every
// connection must present the same certificate, and is checked like a probe before anything is sent.
func (e Expected) PinnedConfig(address netip.Addr, answer Answer) *tls.Config {
	return &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the certificate is self-signed, and verified below
		MinVersion:         tls.VersionTLS12,
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return errors.New("it presents no certificate")
			}

			now := e.checkMAC(e.checkFingerprint(state.PeerCertificates[0]), address)
			if !now.Ready || now.Fingerprint != answer.Fingerprint {
				return fmt.Errorf("another machine answers than before, and nothing is sent to it: %s", now.Text)
			}

			return nil
		},
	}
}

func probe(ctx context.Context, address netip.AddrPort, expected Expected) Answer {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()

	certificateRequested := false

	var certificates []*x509.Certificate

	dialer := tls.Dialer{Config: &tls.Config{
		// Certificates are self-signed in maintenance mode; nothing is sent, and the certificate is checked below.
		InsecureSkipVerify: true, //nolint:gosec
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			certificateRequested = true

			return &tls.Certificate{}, nil
		},
		VerifyConnection: func(state tls.ConnectionState) error {
			certificates = state.PeerCertificates

			return nil
		},
	}}

	var source netip.Addr

	conn, err := dialer.DialContext(ctx, "tcp", address.String())
	if err == nil {
		source = sourceOf(conn)
		_ = conn.Close()
	}

	switch {
	case len(certificates) == 0:
		return Answer{Text: describeError(err)}
	case !certificateRequested:
		answer := expected.checkMAC(expected.checkFingerprint(certificates[0]), address.Addr())
		answer.Source = source

		return answer
	case signedBy(certificates[0], expected.Authority, address.Addr()):
		return Answer{Text: "it answers with its cluster's certificate", Ready: true, Configured: true}
	default:
		return Answer{
			Text: "a machine that is configured already answers, with a certificate of another cluster", Configured: true,
		}
	}
}

// checkFingerprint returns the answer for a certificate in maintenance mode.
func (e Expected) checkFingerprint(certificate *x509.Certificate) Answer {
	// As Talos and `talosctl apply-config --cert-fingerprint` compute it.
	digest := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	answer := Answer{Fingerprint: base64.StdEncoding.EncodeToString(digest[:])}
	answer.Text = "it answers in maintenance mode, with the certificate " + answer.Fingerprint
	answer.Unproven = e.Fingerprint != answer.Fingerprint && (e.Configured || e.Fingerprint != "")
	answer.Ready = !answer.Unproven

	return answer
}

// checkMAC makes an answer from a foreign MAC unproven, unless the fingerprint on the console is known.
func (e Expected) checkMAC(answer Answer, address netip.Addr) Answer {
	mac := lookupMAC(cmp.Or(e.arpTable, defaultARPTable), address)
	if mac == "" || len(e.MACs) == 0 || e.Fingerprint != "" ||
		slices.ContainsFunc(e.MACs, func(own string) bool { return strings.EqualFold(own, mac) }) {
		return answer
	}

	answer.Text += fmt.Sprintf(", from the MAC %s, and the machine has %s", mac, strings.Join(e.MACs, ", "))
	answer.Ready, answer.Unproven = false, true

	return answer
}

// lookupMAC returns the MAC of an address in the ARP table; empty = unknown, or not in the local network segment.
func lookupMAC(file string, address netip.Addr) string {
	table, err := os.ReadFile(file) //nolint:gosec // the kernel's
	if err != nil {                 // not on Linux
		return ""
	}

	for line := range strings.Lines(string(table)) {
		// 10.0.0.10  0x1  0x2  02:a1:45:33:60:85  *  eth0; without 0x2 it is not resolved
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[0] != address.String() {
			continue
		}

		if flags, err := strconv.ParseUint(fields[2], 0, 16); err == nil && flags&2 != 0 {
			return fields[3]
		}
	}

	return ""
}

func describeError(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to host"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer"
	default:
		return fmt.Sprintf("something that is not Talos answers (%v)", err)
	}
}

// signedBy verifies a certificate as clients of the Talos API do.
func signedBy(certificate *x509.Certificate, authority []byte, address netip.Addr) bool {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return false
	}

	_, err := certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: address.String()})

	return err == nil
}
