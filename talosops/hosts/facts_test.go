package hosts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/request"
)

// document returns the facts that a host prints.
func document(t *testing.T, change func(*hostfacts.Facts)) string {
	t.Helper()

	facts := enginetest.PreparedHost("pve1")
	change(facts)
	text, err := json.Marshal(facts)
	require.NoError(t, err)

	return string(text)
}

func unchanged(*hostfacts.Facts) {}

func hostRequest(h *sshHost) request.Host {
	return request.Host{Shell: h.Shell, Parameters: "host='pve1'\n"}
}

// runFactsVerb runs the verb, which succeeds even if hosts do not answer: the program decides what that means.
func runFactsVerb(t *testing.T, req request.Facts) (answers map[string]request.HostFacts, printed string) {
	t.Helper()

	stdout, stderr, err := runHost(t, "facts", req)
	require.NoError(t, err)
	assert.Empty(t, stderr)

	var result request.FactsResult
	require.NoError(t, json.Unmarshal([]byte(stdout), &result), stdout)

	answers = map[string]request.HostFacts{}
	for _, answer := range result.Hosts {
		answers[answer.Name] = answer
	}

	return answers, stdout
}

func TestFactsAsksAllHostsAtOnce(t *testing.T) {
	t.Parallel()
	private, public, _ := newKey(t)

	var both sync.WaitGroup
	both.Add(2)
	// Each host answers only after both were queried.
	together := func(command, stdin string) (string, string, int) {
		both.Done()
		both.Wait()
		assert.Equal(t, scripts.HostCommand("facts"), command)
		assert.Equal(t, scripts.HostScript("host='pve1'\n"), stdin)

		return document(t, unchanged), "", 0
	}
	one, two := startHost(t, "pve1", public, together), startHost(t, "pve2", public, together)

	answers, stdout := runFactsVerb(t, request.Facts{
		PrivateKey: private, Hosts: []request.Host{hostRequest(one), hostRequest(two)},
	})
	for _, name := range []string{"pve1", "pve2"} {
		require.Empty(t, answers[name].Error)
		facts, err := hostfacts.Parse(answers[name].Facts)
		require.NoError(t, err)
		assert.Equal(t, enginetest.PreparedHost("pve1"), facts)
	}

	assert.Equal(t, 1, one.dials, "one round trip")
	assert.NotContains(t, stdout, private[40:80])
}

func TestFactsOfHostsThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	private, public, _ := newKey(t)

	_, otherKey, _ := newKey(t)
	for name, test := range map[string]struct {
		authorized string // another key than that of the request
		answer     commandHandler
		change     func(*sshHost)
		says       string
	}{
		"another host key": {
			change: func(h *sshHost) { h.HostKey = otherKey }, says: "shows another host key than the configured one",
		},
		"any host key, as configured": {change: func(h *sshHost) { h.HostKey, h.AcceptAnyHostKey = "", true }},
		"the wrong private key": {
			authorized: otherKey, says: "does not let root in with this key: add its public half to ~/.ssh/authorized_keys",
		},
		"nothing listens": {change: func(h *sshHost) { h.Port = 1 }, says: "does not answer at 127.0.0.1:1"},
		"a handshake that breaks off": {
			change: func(h *sshHost) {
				h.mutex.Lock()
				defer h.mutex.Unlock()

				h.refuses = true
			},
			says: "unable to log in to pve1 at 127.0.0.1",
		},
		"a script that fails": {
			answer: func(string, string) (string, string, int) {
				return "", "some noise\nerror: one thing\nerror: another\nmore noise\n", 1
			},
			says: "pve1 says: one thing; another",
		},
		"a shell that greets": {
			answer: prints("Welcome!\n{}"),
			says:   "pve1 printed no facts but something else: does its login shell print text of its own?",
		},
		"no flock": {
			answer: func(string, string) (string, string, int) { return "", "bash: flock: command not found\n", 127 },
			says:   "pve1 says: bash: flock: command not found",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := startHost(t, "pve1", cmp.Or(test.authorized, public), prints("{}"))
			good := startHost(t, "pve2", public, prints("{}"))

			if test.answer != nil {
				h.answer = test.answer
			}

			if test.change != nil {
				test.change(h)
			}

			answers, stdout := runFactsVerb(t, request.Facts{
				PrivateKey: private, Hosts: []request.Host{hostRequest(h), hostRequest(good)},
			})
			if test.says == "" {
				assert.Empty(t, answers["pve1"].Error)
			} else {
				assert.Contains(t, answers["pve1"].Error, test.says)
				assert.Empty(t, answers["pve1"].Facts)
			}

			assert.Empty(t, answers["pve2"].Error, "the other host's answer is there")
			assert.NotContains(t, stdout, private[40:80])
		})
	}
}

// TestFactsOfAHostThatHangs: the message is the same in whichever step the time is over.
func TestFactsOfAHostThatHangs(t *testing.T) {
	t.Parallel()
	private, public, _ := newKey(t)
	h := startHost(t, "pve1", public, hangs(t))
	answers, _ := runFactsVerb(t, request.Facts{
		PrivateKey: private, StepTimeout: "100ms", Hosts: []request.Host{hostRequest(h)},
	})
	assert.Contains(t, answers["pve1"].Error, "pve1 did not answer within 100ms")
}

// TestTheHandshakeTimesOut: the host accepts connections and never answers.
func TestTheHandshakeTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn, deaf := net.Pipe()
		defer deaf.Close() //nolint:errcheck // a test's

		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()

		before := time.Now()
		config := &ssh.ClientConfig{HostKeyCallback: ssh.InsecureIgnoreHostKey()} //nolint:gosec // a test's
		_, err := hostShell{request.Shell{Name: "pve1"}}.handshake(ctx, conn, "10.0.0.2:22", config)
		require.ErrorContains(t, err, "pve1 at 10.0.0.2:22 did not finish the handshake in time")
		assert.Equal(t, 15*time.Second, time.Since(before))
	})
}

func encrypted(t *testing.T) string {
	t.Helper()
	private, _, _ := newKey(t)
	key, err := ssh.ParseRawPrivateKey([]byte(private))
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte("passphrase"))
	require.NoError(t, err)

	var text bytes.Buffer
	require.NoError(t, pem.Encode(&text, block))

	return text.String()
}
