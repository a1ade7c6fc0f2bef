package talosapi

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"talos-proxmox/lab/machine/journal"
)

// Streams serves a machine's console and events.
type Streams struct {
	// Lock guards Journal, and is held while the functions are called.
	Lock    sync.Locker
	Journal *journal.Journal
	// Changed returns a channel that closes at the next entry, HasService reports whether the machine has a service.
	Changed    func() <-chan struct{}
	HasService func(service string) bool
}

// emptyEvent is the first event of every stream.
var emptyEvent = &anypb.Any{TypeUrl: "talos/runtime/google.protobuf.Empty"}

// Events implements the machine service.
func (s Streams) Events(in *machineapi.EventsRequest, out grpc.ServerStreamingServer[machineapi.Event]) error {
	if err := out.Send(&machineapi.Event{ActorId: in.GetWithActorId(), Data: emptyEvent}); err != nil {
		return err
	}

	s.Lock.Lock()
	position := s.Journal.Position(in)
	s.Lock.Unlock()

	for {
		s.Lock.Lock()
		changed := s.Changed()

		var events []*machineapi.Event

		events, position = s.Journal.Events(position)
		s.Lock.Unlock()

		for _, e := range events {
			if in.GetWithActorId() != "" && e.GetActorId() != in.GetWithActorId() {
				continue
			}

			if err := out.Send(e); err != nil {
				return err
			}
		}

		select {
		case <-changed:
		case <-out.Context().Done():
			return out.Context().Err()
		}
	}
}

// Dmesg implements the machine service.
func (s Streams) Dmesg(in *machineapi.DmesgRequest, out grpc.ServerStreamingServer[common.Data]) error {
	return s.lines(out, in.GetFollow(), in.GetTail(), -1, func(l journal.Line) (string, bool) {
		return fmt.Sprintf("kern: %7s: [%s]: %s", "info", l.At.Format(time.RFC3339Nano), l.Text), true
	})
}

// lines streams console lines; last limits how many old ones are sent, unless negative.
func (s Streams) lines(
	out grpc.ServerStreamingServer[common.Data], follow, onlyNew bool, last int32,
	format func(journal.Line) (string, bool),
) error {
	position := 0

	if onlyNew {
		s.Lock.Lock()
		_, position = s.Journal.Lines(0)
		s.Lock.Unlock()
	}

	for first := true; ; first = false {
		s.Lock.Lock()
		changed := s.Changed()

		var fresh []journal.Line

		fresh, position = s.Journal.Lines(position)
		s.Lock.Unlock()

		texts := make([]string, 0, len(fresh))

		for _, l := range fresh {
			if text, ok := format(l); ok {
				texts = append(texts, text)
			}
		}

		if first && last >= 0 {
			texts = texts[max(0, len(texts)-int(last)):]
		}

		for _, text := range texts {
			if err := out.Send(&common.Data{Bytes: []byte(text + "\n")}); err != nil {
				return err
			}
		}

		if !follow {
			return nil
		}

		select {
		case <-changed:
		case <-out.Context().Done():
			return nil
		}
	}
}

// Logs implements the machine service. The log of a service is the console lines that mention it.
func (s Streams) Logs(in *machineapi.LogsRequest, out grpc.ServerStreamingServer[common.Data]) error {
	name := in.GetId()

	s.Lock.Lock()
	known := s.HasService(name)
	s.Lock.Unlock()

	if !known {
		return fmt.Errorf("log %q was not registered", name)
	}

	return s.lines(out, in.GetFollow(), false, in.GetTailLines(), func(l journal.Line) (string, bool) {
		return l.At.Format(time.RFC3339) + " " + l.Text, strings.Contains(l.Text, "service["+name+"]") ||
			strings.Contains(l.Text, " "+name+": ") || strings.Contains(l.Text, ":"+name+": ")
	})
}
