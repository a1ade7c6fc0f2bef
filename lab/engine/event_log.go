package engine

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
)

// eventLog writes the engine's events as `pulumi preview --event-log` does; the Automation API uses that flag itself.
type eventLog struct {
	events      chan events.EngineEvent
	ended, done chan struct{}
}

func newEventLog(path string) (*eventLog, error) {
	file, err := os.Create(path) //nolint:gosec // the user names the file
	if err != nil {
		return nil, fmt.Errorf("unable to write the engine's events: %w", err)
	}

	l := &eventLog{events: make(chan events.EngineEvent), ended: make(chan struct{}), done: make(chan struct{})}

	go func() {
		defer close(l.done)
		defer file.Close() //nolint:errcheck // an incomplete log is seen as such

		encoder := json.NewEncoder(file)

		for {
			select {
			case event, more := <-l.events:
				if !more {
					return
				}

				encoder.Encode(event.EngineEvent) //nolint:errcheck,errchkjson,gosec // see above
			case <-l.ended:
				return
			}
		}
	}()

	return l, nil
}

// close waits until all events are written. The Automation API has handed them over by then, but closes the channel
// only if there were any.
func (l *eventLog) close() {
	close(l.ended)
	<-l.done
}
