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

// How long the library may say nothing: while a kubelet restarts, which it would await for ever and which is known to
// hang (siderolabs/talos#6976, #9441, #13109); while a node pulls an image; otherwise. Its own waits are three and five
// minutes.
const (
	kubeletSilence = 5 * time.Minute
	pullSilence    = 20 * time.Minute
	otherSilence   = 7 * time.Minute
)

// reconcileTimeout is how long the library waits for what has become of manifests: shorter than the silence after which
// it is ended, so that it can say which of them are not there.
const reconcileTimeout = 5 * time.Minute

// stalledError says that nothing was heard of the library for too long.
type stalledError struct {
	after time.Duration
	last  string
}

func (e *stalledError) Error() string {
	return fmt.Sprintf("nothing has happened for %s since: %s", e.after, e.last)
}

// waitedForKubelet says whether a kubelet was awaited.
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

// libraryCall is a call of Talos' library that writes what it does.
type libraryCall func(ctx context.Context, out io.Writer) error

// callWithRetry calls the library, and once more where a kubelet did not come back: what was done is skipped then.
func callWithRetry(ctx context.Context, p *progress, call libraryCall) error {
	err := callWithWatchdog(ctx, p, call)

	var stalled *stalledError
	if !errors.As(err, &stalled) || !stalled.waitedForKubelet() {
		return err
	}

	p.note("the kubelet has not come back within " + stalled.after.String() + "; it is looked at once more")
	p.restart()

	return callWithWatchdog(ctx, p, call)
}

// callWithWatchdog calls the library, and ends it when it has been silent for too long.
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
