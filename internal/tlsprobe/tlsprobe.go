// Package tlsprobe finds out whether a Talos machine answers at its address, and as what, by nothing more than a TLS
// handshake: a machine without configuration asks for no client certificate; a configured one does, and shows a
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
	// lookTimeout bounds one look; an address that no one has is silent for longer than the pause between two looks.
	lookTimeout = 5 * time.Second
)

// Expected is the machine that is to answer.
type Expected struct {
	// Authority is the certificate of its cluster's Talos authority, as PEM.
	Authority []byte
	// Configured says that it was configured before, and is the same machine since: in maintenance mode it proves nothing.
	Configured bool
	// Fingerprint is that of its certificate in maintenance mode, as Talos writes it on the machine's console; empty = not
	// known.
	Fingerprint string
	// MACs are those of its cards: in maintenance mode, no other one of this computer's own segment is the machine. Where
	// there is a router in between, or nobody knows them, that proves nothing.
	MACs []string

	neighbours string // the kernel's file of who is in the segment; empty = neighboursFile
}

// neighboursFile has the MAC address that each IPv4 address of the segment was last seen with (source: proc(5)).
const neighboursFile = "/proc/net/arp"

// Answer is what came of a look at a machine.
type Answer struct {
	// Text says what answered, or why nothing did.
	Text string
	// Ready says that the machine takes a configuration: in maintenance mode from anyone, configured from the owner of its
	// cluster's certificates.
	Ready bool
	// Configured says that the machine has a configuration, of whatever cluster.
	Configured bool
	// Unproven says that it would take one, and that nothing says that it is the machine that is expected.
	Unproven bool
	// Fingerprint is that of the certificate that it shows in maintenance mode.
	Fingerprint string
}

// Look asks the Talos API at the address who it is.
func Look(ctx context.Context, address netip.Addr, expected Expected) Answer {
	return probe(ctx, netip.AddrPortFrom(address, talosPort), expected)
}

func probe(ctx context.Context, address netip.AddrPort, expected Expected) Answer {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()

	asked := false

	var shown []*x509.Certificate

	dialer := tls.Dialer{Config: &tls.Config{
		// A machine in maintenance mode signs its own certificate; nothing is sent, and what is shown is judged below.
		InsecureSkipVerify: true, //nolint:gosec
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = true

			return &tls.Certificate{}, nil
		},
		VerifyConnection: func(state tls.ConnectionState) error {
			shown = state.PeerCertificates

			return nil
		},
	}}

	conn, err := dialer.DialContext(ctx, "tcp", address.String())
	if err == nil {
		_ = conn.Close()
	}

	switch {
	case len(shown) == 0:
		return Answer{Text: noAnswer(err)}
	case !asked:
		return expected.bound(expected.maintenance(shown[0]), address.Addr())
	case signedBy(shown[0], expected.Authority, address.Addr()):
		return Answer{Text: "it answers with its cluster's certificate", Ready: true, Configured: true}
	default:
		return Answer{
			Text: "a machine that is configured already answers, with a certificate of another cluster", Configured: true,
		}
	}
}

// maintenance judges who answers in maintenance mode, by the certificate that is shown.
func (e Expected) maintenance(shown *x509.Certificate) Answer {
	digest := sha256.Sum256(shown.RawSubjectPublicKeyInfo) // as Talos and `talosctl apply-config --cert-fingerprint` do
	answer := Answer{Fingerprint: base64.StdEncoding.EncodeToString(digest[:])}
	answer.Text = "it answers in maintenance mode, with the certificate " + answer.Fingerprint
	answer.Unproven = e.Fingerprint != answer.Fingerprint && (e.Configured || e.Fingerprint != "")
	answer.Ready = !answer.Unproven

	return answer
}

// bound refuses who answers from a card that is none of the machine's, unless its console has its fingerprint.
func (e Expected) bound(answer Answer, address netip.Addr) Answer {
	mac := neighbour(cmp.Or(e.neighbours, neighboursFile), address)
	if mac == "" || len(e.MACs) == 0 || e.Fingerprint != "" ||
		slices.ContainsFunc(e.MACs, func(own string) bool { return strings.EqualFold(own, mac) }) {
		return answer
	}

	answer.Text += fmt.Sprintf(", from the MAC %s, and the machine has %s", mac, strings.Join(e.MACs, ", "))
	answer.Ready, answer.Unproven = false, true

	return answer
}

// neighbour is the MAC address that an address of the segment has; empty = it is not of the segment, or not known.
func neighbour(file string, address netip.Addr) string {
	table, err := os.ReadFile(file) //nolint:gosec // the kernel's
	if err != nil {                 // as on other systems than Linux
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

func noAnswer(err error) string {
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
