package live

import (
	"bytes"
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/operations"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/terminal"
	"talos-proxmox/internal/timeline"
)

// output is what a watch prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.b.Write(p)
}

// take returns what was printed since the last call.
func (o *output) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()

	defer o.b.Reset()

	return o.b.String()
}

// TestWatchInAPipe: only what has changed is printed, and Ctrl-C is no error.
func TestWatchInAPipe(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		var (
			out     output
			answers atomic.Int32 // what the stack answers with
		)

		c := newCollector(t, func(context.Context) (operations.Overview, error) {
			o := newOverview()
			o.Clusters[0].Asked, o.Placement.Hosts[0].CPU = time.Now(), float64(time.Now().Second())/60

			switch answers.Load() {
			case 1:
				o.Clusters[1].Status, o.Clusters[1].Care = request.StatusOK, nil
			case 2:
				return o, errProxmox
			}

			return o, nil
		})
		path := filepath.Join(t.TempDir(), "log")
		c.Runs = timeline.NewFile(path)

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)

		go func() { ended <- c.Watch(ctx, &out, terminal.Terminal{}) }()

		// after lets the watch collect several times.
		after := func() string {
			time.Sleep(time.Minute)
			synctest.Wait()

			return out.take()
		}

		first := after()
		assert.Equal(t, 1, strings.Count(first, "Cluster prod needs care:"), first)
		assert.Regexp(t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n`, first)
		assert.NotContains(t, first, "\x1b")
		assert.Contains(t, first, "376567988ad3", "a pipe has no width")
		assert.Empty(t, after(), "when it was asked, and the load of hosts, is no change")

		answers.Store(1)

		assert.Equal(t, 1, strings.Count(after(), "Cluster test is healthy."))

		answers.Store(2)
		assert.Equal(t, 1, strings.Count(after(), "The last collection failed: "+errProxmox.Error()))

		writeLog(t, path, time.Now(), "")
		assert.Regexp(t, `^\S+Z up: 41 done, 1 running, 1 failed; create prod-healthy\n$`, after())

		cancel()
		require.NoError(t, <-ended)
	})
}

// TestWatchInATerminal: one picture, which fits the terminal, is renewed each second.
func TestWatchInATerminal(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		var out output

		c := newCollector(t, nil)
		c.Interval = time.Hour

		var height atomic.Int32

		height.Store(60)

		on := terminal.Terminal{Size: func() (int, int) { return 80, int(height.Load()) }, Colour: true}

		runLog(t, c, time.Now(), "")

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)

		go func() { ended <- c.Watch(ctx, &out, on) }()

		time.Sleep(500 * time.Millisecond)
		synctest.Wait()

		first := out.take()
		assert.Equal(t, 1, strings.Count(first, "\x1b[2J"), "the terminal is cleared once")

		drawings := strings.Split(first, "\x1b[H")
		last := drawings[len(drawings)-1]
		assert.Contains(t, last, "\x1b[1;33mCluster prod needs care:\x1b[0m")
		assert.Contains(t, last, "\x1b[1;31mCluster test does not answer:\x1b[0m")
		assert.Contains(t, last, "pve1          online   25 % of 16  48 of 64 GiB")
		assert.Contains(t, last, "An up is in progress")
		assert.Contains(t, last, "  create prod-healthy, ")
		assert.Contains(t, last, ": waiting for <b>prod-cp-1</b>")

		for line := range strings.SplitSeq(plainText(last), "\n") {
			assert.LessOrEqual(t, utf8.RuneCountInString(line), 80, line)
		}

		time.Sleep(time.Second)
		synctest.Wait()

		second := out.take()
		assert.Contains(t, second, "1s ago")
		assert.NotContains(t, second, "\x1b[2J")

		height.Store(10)

		time.Sleep(time.Second)
		synctest.Wait()

		low := plainText(out.take())
		assert.Equal(t, 9, strings.Count(low, "\n"))
		assert.Regexp(t, `… \d+ more lines: a higher terminal shows them\n$`, low)

		cancel()
		require.NoError(t, <-ended)
	})
}

// TestWatchWithoutColours is what NO_COLOR asks for.
func TestWatchWithoutColours(t *testing.T) {
	t.Parallel()

	var b bytes.Buffer

	c := newCollector(t, nil)
	c.Once(t.Context())

	on := terminal.Terminal{Size: func() (int, int) { return 120, 100 }}
	require.NoError(t, (&screen{to: &b, Terminal: on}).show(c.Snapshot()))
	assert.Contains(t, b.String(), "\nCluster prod needs care:\x1b[K")
	assert.NotContains(t, b.String(), "\x1b[1;")
}

// plainText removes the control sequences of the terminal.
func plainText(text string) string {
	return regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]").ReplaceAllString(text, "")
}
