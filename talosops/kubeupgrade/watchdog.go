package kubeupgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// How long the library may be silent: while it waits for a kubelet's restart, which has no timeout and is known to hang
// (siderolabs/talos#6976, #9441, #13109); while a node pulls an image; otherwise. Its own timeouts are three and five
// minutes.
const (
	kubeletSilence = 5 * time.Minute
	pullSilence    = 20 * time.Minute
	otherSilence   = 7 * time.Minute
)

// reconcileTimeout is how long the library waits for the objects of manifests. It is shorter than otherSilence, so that
// the library can report which of them are not ready.
const reconcileTimeout = 5 * time.Minute

// stalledError says that the library was silent for too long.
type stalledError struct {
	after time.Duration
	last  string
}

func (e *stalledError) Error() string {
	return fmt.Sprintf("nothing has happened for %s since: %s", e.after, e.last)
}

// waitedForKubelet reports whether the library waited for a kubelet's restart.
func (e *stalledError) waitedForKubelet() bool { return isKubeletWait(e.last) }

func isKubeletWait(line string) bool { return strings.HasSuffix(line, "waiting for kubelet restart") }

func silenceLimit(line string) time.Duration {
	switch {
	case isKubeletWait(line):
		return kubeletSilence
	case strings.Contains(line, ": pre-pulling "):
		return pullSilence
	default:
		return otherSilence
	}
}

// libraryCall calls Talos' library, which writes its messages to out.
type libraryCall func(ctx context.Context, out io.Writer) error

// callWithRetry calls the library, and once more if a kubelet hangs: the library skips what is done already.
func callWithRetry(ctx context.Context, p *progress, call libraryCall) error {
	err := callWithWatchdog(ctx, p, call)

	var stalled *stalledError
	if !errors.As(err, &stalled) || !stalled.waitedForKubelet() {
		return err
	}

	p.note("the kubelet has not come back within " + stalled.after.String() + "; retrying once")
	p.restart()

	return callWithWatchdog(ctx, p, call)
}

// callWithWatchdog calls the library, and cancels the call if it is silent for too long.
func callWithWatchdog(ctx context.Context, p *progress, call libraryCall) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)

	var mu sync.Mutex

	last, limit := "the beginning", otherSilence
	timer := time.AfterFunc(limit, func() {
		mu.Lock()
		defer mu.Unlock()

		end(&stalledError{after: limit, last: last})
	})

	defer timer.Stop()

	p.onMessage = func(line string) {
		mu.Lock()
		defer mu.Unlock()

		last, limit = line, silenceLimit(line)
		timer.Reset(limit)
	}

	err := call(ctx, p)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}

	return err
}
