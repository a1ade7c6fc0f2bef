package live

import (
	"context"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/browsertest"
	"talos-proxmox/internal/operations"
	"talos-proxmox/internal/timeline"
)

// get requests a path of a page from a host.
func get(handler http.Handler, method, host, path string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, path, nil), httptest.NewRecorder()
	r.Host = host
	handler.ServeHTTP(w, r)

	return w
}

// parts returns what a page shows.
func parts(c *Collector) string {
	return html.UnescapeString(get(c.handler(make(chan struct{}, 1)), "GET", "127.0.0.1", "/parts").Body.String())
}

func TestOnlyLoopback(t *testing.T) {
	t.Parallel()

	for address, says := range map[string]string{
		"0.0.0.0:8080":     `--listen: "0.0.0.0:8080" is not on loopback, and the page has no passwords: 127.0.0.1:8080; from another computer: ssh -L`,
		":8080":            "is not on loopback",
		"10.0.0.5:8080":    "is not on loopback",
		"[::]:8080":        "is not on loopback",
		"example.org:8080": "is not on loopback",
		"127.0.0.1":        "is not an address with a port",
		"127.0.0.1:a":      "unable to listen on 127.0.0.1:a",
	} {
		_, err := Listen(t.Context(), address)
		require.ErrorContains(t, err, says, address)
	}

	first, err := Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)

	defer first.Close() //nolint:errcheck // at the end of the test

	_, err = Listen(t.Context(), first.Addr().String())
	require.ErrorContains(t, err, "another program listens on "+first.Addr().String()+" already")
}

// TestRequests: a page of somebody else's cannot read this one, by whatever name it is reached.
func TestRequests(t *testing.T) {
	t.Parallel()

	handler := newCollector(t, nil).handler(make(chan struct{}, 1))

	for _, test := range []struct {
		method, host, path string
		want               int
	}{
		{"GET", "127.0.0.1:4567", "/", 200},
		{"GET", "localhost:1", "/parts", 200},
		{"GET", "[::1]:80", "/", 200},
		{"HEAD", "127.0.0.1", "/", 200},
		{"GET", "attacker.example:8080", "/", 421},
		{"GET", "127.0.0.1.attacker.example", "/parts", 421},
		{"GET", "10.0.0.5", "/", 421},
		{"GET", "", "/", 421},
		{"GET", "127.0.0.1", "/other", 404},
		{"POST", "127.0.0.1", "/", 405},
	} {
		assert.Equal(t, test.want, get(handler, test.method, test.host, test.path).Code, "%v", test)
	}

	answer := get(handler, "GET", "127.0.0.1", "/")
	policy := answer.Header().Get("Content-Security-Policy")
	assert.Regexp(t, `^default-src 'none'; style-src 'nonce-\w+'; script-src 'nonce-\w+'; connect-src 'self'; base-uri 'none'; `+
		`form-action 'none'; frame-ancestors 'none'$`, policy)
	assert.NotEqual(t, policy, get(handler, "GET", "127.0.0.1", "/").Header().Get("Content-Security-Policy"), "a nonce is used once")
	assert.Equal(t, "nosniff", answer.Header().Get("X-Content-Type-Options"))
	assert.Equal(t, "no-store", answer.Header().Get("Cache-Control"))
	assert.NotRegexp(t, `src=|href=|url\(|@import`, answer.Body.String(), "nothing is from outside")
	assert.NotContains(t, answer.Body.String(), "style=", "the policy refuses it")
}

func TestPage(t *testing.T) {
	t.Parallel()

	c := newCollector(t, nil)
	c.now = func() time.Time { return asked }
	assert.Contains(t, parts(c), "Asks the clusters and Proxmox for the first time.")

	c.Once(t.Context())
	c.now = func() time.Time { return asked.Add(4 * time.Second) }

	text := parts(c)
	for _, part := range []string{
		"As of " + clock(asked) + ", 4s ago.", `<h2 class="care state">Cluster prod needs care:</h2>`,
		`<h2 class="unknown state">Cluster test does not answer:</h2>`, "prod-cp-1: runs Talos v1.14.3 (planned: v1.14.4)",
		"cores: 25 % of 16", "memory: 48 of 64 GiB", `<svg class="bar" role="img" aria-label="75 %"`, `<p class="care">Ready</p>`,
		"Talos v1.14.3 · kubelet v1.37.2", "etcd: leader", "planned on pve2", `<p class="care">running, not Ready, cordoned</p>`,
		"GPUs: 0/1 nvidia.com/gpu", `<p class="unknown">unknown, its host is offline, Talos does not answer</p>`, `<p class="care">stopped</p>`,
		`<p class="unknown">offline</p>`, `<td data-label="ends" class="whole">2026-12-19</td><td data-label="in" class="whole">19 days</td>`,
		"Newest snapshot of etcd: /backups/prod.age, 7 hours ago", "No run of this stack was logged in this folder.",
	} {
		assert.Contains(t, text, part)
	}

	pve1, _, found := strings.Cut(text, "<h3>pve2</h3>")
	require.True(t, found)
	assert.Contains(t, pve1, "<h3>prod-gpu-1</h3>", "it is drawn where it is")

	raw := get(c.handler(make(chan struct{}, 1)), "GET", "localhost", "/").Body.String()
	assert.NotContains(t, raw, "<script>alert(1)")
	assert.NotContains(t, raw, "not to be seen")
}

// TestProblem: a collection that fails is said, and what was known before stays.
func TestProblem(t *testing.T) {
	t.Parallel()

	var fails error

	c := newCollector(t, func(context.Context) (operations.Overview, error) { return newOverview(), fails })
	c.now = func() time.Time { return asked }

	fails = errProxmox

	c.Once(t.Context())
	assert.Contains(t, parts(c), "Nothing was answered yet.")
	assert.Contains(t, parts(c), "The last collection failed: "+errProxmox.Error())
	assert.Contains(t, parts(c), "<h3>prod-cp-1</h3>", "the picture of the plan")

	fails = nil

	c.Once(t.Context())
	assert.NotContains(t, parts(c), "failed")

	fails = errProxmox
	c.now = func() time.Time { return asked.Add(time.Minute) }
	c.Once(t.Context())
	assert.Contains(t, parts(c), "As of "+clock(asked)+", 1m0s ago.")
	assert.Contains(t, parts(c), errProxmox.Error())
	assert.Contains(t, parts(c), "Cluster prod needs care:")
}

// TestOneCollection: there is one collection at a time and one in an interval, however many look at the page, and none
// if nobody does.
func TestOneCollection(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		var collections, running atomic.Int32

		c := newCollector(t, func(ctx context.Context) (operations.Overview, error) {
			assert.EqualValues(t, 1, running.Add(1))
			defer running.Add(-1)

			collections.Add(1)

			select { // it takes longer than the interval
			case <-ctx.Done():
			case <-time.After(20 * time.Second):
			}

			return newOverview(), ctx.Err()
		})

		ctx, cancel := context.WithCancel(t.Context())
		viewed := make(chan struct{}, 1)
		handler := c.handler(viewed)

		go c.collect(ctx, viewed)

		for range 90 { // seconds, each with many viewers
			for range 20 {
				assert.Equal(t, 200, get(handler, "GET", "127.0.0.1", "/parts").Code)
			}

			time.Sleep(time.Second)
		}

		assert.EqualValues(t, 4, collections.Load(), "one in 25 seconds")

		time.Sleep(time.Hour)
		assert.EqualValues(t, 5, collections.Load(), "the last request was answered, and nobody looks any more")

		get(handler, "GET", "127.0.0.1", "/")
		synctest.Wait()
		assert.EqualValues(t, 6, collections.Load())
		cancel()
	})
}

// runLog gives a collector a run's log.
func runLog(t *testing.T, c *Collector, began time.Time, rest string) {
	t.Helper()

	path := filepath.Join(t.TempDir(), "log")
	writeLog(t, path, began, rest)
	c.Runs = timeline.NewFile(path)
}

// writeLog writes a run's log: steps that have ended, one that runs, and one that failed.
func writeLog(t *testing.T, path string, began time.Time, rest string) {
	t.Helper()

	var b strings.Builder

	event := func(after int64, format string, values ...any) {
		fmt.Fprintf(&b, `{"sequence": 1, "timestamp": %d, %s}`+"\n", began.Unix()+after, fmt.Sprintf(format, values...))
	}
	step := func(after int64, kind, op, name string) {
		event(after, `%q: {"metadata": {"op": %q, "urn": "urn:pulumi:prod::p::command:local:Command::%s", "new": {"custom": true, `+
			`"inputs": {"stdin": "not to be seen"}}}}`, kind, op, name)
	}

	event(0, `"preludeEvent": {"config": {"talos-proxmox:sshPrivateKey": "not to be seen"}}`)

	for i := range maxRows { // more than are shown
		step(0, "resourcePreEvent", "create", fmt.Sprintf("early-%d", i))
		step(1, "resOutputsEvent", "create", fmt.Sprintf("early-%d", i))
	}

	step(5, "resourcePreEvent", "update", "prod-cp-1-vm")
	step(20, "resOutputsEvent", "update", "prod-cp-1-vm")
	step(20, "resourcePreEvent", "create", "prod-healthy")
	event(25, `"diagnosticEvent": {"severity": "info", "ephemeral": true, "urn": %q, "message": "waiting for <b>prod-cp-1</b>"}`,
		"urn:pulumi:prod::p::command:local:Command::prod-healthy")
	step(21, "resourcePreEvent", "delete", "prod-old-1-leave")
	step(30, "resOpFailedEvent", "delete", "prod-old-1-leave")
	b.WriteString(rest)
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
}

func TestTimeline(t *testing.T) {
	t.Parallel()

	c := newCollector(t, nil)
	c.now = func() time.Time { return asked.Add(40 * time.Second) }
	runLog(t, c, asked, "")

	text := parts(c)
	for _, part := range []string{
		`<h2 class="ok state">A run is in progress</h2>`, "An up is in progress for 40s: 41 done, 1 running, 1 failed.",
		"<details open><summary>40 steps, and 3 earlier ones that have ended</summary>",
		`<span>update prod-cp-1-vm</span></td><td data-label="took" class="whole">15s</td>`,
		`aria-label="done" viewBox="0 0 1000 12" preserveAspectRatio="none"><rect class="done" x="125" width="375"`,
		`<span>create prod-healthy</span><div class="quiet">waiting for <b>prod-cp-1</b></div></td><td data-label="took" class="whole">20s`,
		`<rect class="running" x="500" width="500"`, `<rect class="failed" x="525" width="225"`,
	} {
		assert.Contains(t, text, part)
	}

	raw := get(c.handler(make(chan struct{}, 1)), "GET", "localhost", "/").Body.String()
	assert.NotContains(t, raw, "not to be seen")
	assert.NotContains(t, raw, "<b>")

	c.now = func() time.Time { return asked.Add(time.Hour) }
	assert.Contains(t, parts(c), "has written no event for 59m30s: it waits, or was killed (then talos-proxmox recover prod removes")

	end := func(result string, preview bool) string {
		return fmt.Sprintf(`{"timestamp": %d, "summaryEvent": {"result": %q, "isPreview": %t}}`+"\n"+`{"timestamp": %[1]d, "cancelEvent": {}}`,
			asked.Unix()+45, result, preview)
	}
	for rest, says := range map[string]string{
		end("succeeded", false): "The last up ended at ", end("failed", false): "The last up failed at ",
		end("succeeded", true): "An up was previewed at ", end("failed", true): "The last preview failed at ",
	} {
		runLog(t, c, asked, rest)
		assert.Contains(t, parts(c), says)
	}
}

// TestPendingOperations: of a run that writes no log, the state tells what it does.
func TestPendingOperations(t *testing.T) {
	t.Parallel()

	c := newCollector(t, func(context.Context) (operations.Overview, error) {
		o := newOverview()
		o.Pending = []string{"creating prod-cp-1-vm"}

		return o, nil
	})
	c.Once(t.Context())
	assert.Contains(t, parts(c), "a run that is not logged here does them, or was killed: creating prod-cp-1-vm")
}

// measure finds what does not fit, and what is shown of states and steps.
const measure = `
const out = [], style = (e) => page.getComputedStyle(e);
for (const e of dom.querySelectorAll('details')) e.open = true;
if (dom.documentElement.scrollWidth > page.innerWidth) out.push('the page is wider than its window');
for (const box of dom.querySelectorAll('.machine, .host, .cluster, .steps')) {
  if (box.scrollWidth > box.clientWidth) out.push('overflows: ' + box.textContent);
}
for (const box of dom.querySelectorAll('.scroll')) if (box.scrollWidth > box.clientWidth + 1) out.push('is cut: ' + box.scrollWidth + ' of ' + box.clientWidth + box.textContent.slice(0, 40));
const luminance = (colour) => {
  const [r, g, b] = colour.match(/[\d.]+/g).map((v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
};
const ground = (e) => { while (!style(e).backgroundColor.startsWith('rgb(')) e = e.parentElement; return style(e).backgroundColor; };
for (const text of dom.querySelectorAll('h1, h2, h3, p, li, td, summary, span, div.quiet')) {
  const [a, b] = [luminance(style(text).color), luminance(ground(text))].sort((a, b) => b - a);
  if ((a + .05) / (b + .05) < 4.5) out.push('cannot be read: ' + text.textContent);
}
const colours = ['done', 'running', 'failed'].map((state) => style(dom.querySelector('.span .' + state)).fill);
out.push(new Set(colours).size + ' colours of steps');
for (const bar of dom.querySelectorAll('.span rect')) if (bar.getBoundingClientRect().width < 1) out.push('a bar that nobody sees');
const states = [...dom.querySelectorAll('.machines .machine > p:first-of-type')];
out.push(states.map((e) => e.textContent).join('; '), new Set(states.map((e) => style(e).color)).size + ' colours of states');
out.push(style(dom.querySelector('td')).display, style(dom.getElementById('lost')).display);
return out;`

// TestPageInABrowser: at each width, light and dark, everything fits and can be read, and states are told apart.
func TestPageInABrowser(t *testing.T) {
	t.Parallel()

	c := newCollector(t, nil)
	c.now = func() time.Time { return asked.Add(40 * time.Second) }
	runLog(t, c, asked, "")
	c.Once(t.Context())

	shown := get(c.handler(make(chan struct{}, 1)), "GET", "localhost", "/").Body.Bytes()

	for window, found := range browsertest.Inspect(t, shown, measure) {
		display := "table-cell"
		if strings.HasPrefix(window, "360 ") {
			display = "grid"
		}

		assert.Equal(t, []string{
			"3 colours of steps", "Ready; running, not Ready, cordoned; stopped; unknown, its host is offline, Talos does not answer", "2 colours of states", display, "none",
		}, found, window)
	}
}

// TestPageRenewsItself: under its policy, the page's script renews what has changed.
func TestPageRenewsItself(t *testing.T) {
	t.Parallel()

	var collections atomic.Int32

	c := newCollector(t, func(context.Context) (operations.Overview, error) {
		o := newOverview()
		o.Clusters[0].Members[0].Name = fmt.Sprintf("member-%d", collections.Add(1))
		o.Clusters[0].Care.Add("count", nil, "collection %d", collections.Load())

		return o, nil
	})
	c.Interval = 100 * time.Millisecond

	listener, err := Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)

	go func() { served <- c.Serve(ctx, listener) }()

	shown := browsertest.Open(t, "http://"+listener.Addr().String()+"/", "--virtual-time-budget=7000")
	assert.Regexp(t, `collection ([3-9]|\d\d)`, shown)
	assert.Contains(t, shown, `role="alert" hidden`)

	cancel()
	require.NoError(t, <-served)

	_, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	require.Error(t, err, "it has ended")
}
