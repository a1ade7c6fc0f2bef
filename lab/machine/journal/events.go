package journal

import (
	"slices"
	"time"

	"github.com/google/uuid"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// eventsKept is how many events a machine keeps for clients that request past events.
const eventsKept = 300

type event struct {
	*machineapi.Event

	at time.Time
}

// ClearEvents drops the events of the last boot, which Talos keeps in memory; positions continue.
func (j *Journal) ClearEvents() { j.events = log[event]{dropped: j.events.end()} }

// Publish adds an event.
func (j *Journal) Publish(payload proto.Message, actor string) {
	encoded, err := proto.Marshal(payload)
	if err != nil {
		panic(err) // generated messages always encode
	}

	j.events.add(event{at: time.Now(), Event: &machineapi.Event{
		Id: uuid.NewString(), ActorId: actor,
		Data: &anypb.Any{TypeUrl: "talos/runtime/" + string(payload.ProtoReflect().Descriptor().FullName()), Value: encoded},
	}}, eventsKept)
	j.changed()
}

// Events returns the events after a position, and the position after them.
func (j *Journal) Events(position int) ([]*machineapi.Event, int) {
	found, next := j.events.since(position)
	events := make([]*machineapi.Event, 0, len(found))

	for _, e := range found {
		events = append(events, e.Event)
	}

	return events, next
}

// Position returns the position before the events that a client requests; a negative number of events requests all.
func (j *Journal) Position(request *machineapi.EventsRequest) int {
	l := &j.events

	first := func(match func(event) bool) int {
		if i := slices.IndexFunc(l.entries, match); i >= 0 {
			return l.dropped + i
		}

		return l.end()
	}

	switch {
	case request.GetTailId() != "":
		return min(first(func(e event) bool { return e.GetId() == request.GetTailId() })+1, l.end())
	case request.GetTailSeconds() > 0:
		oldest := time.Now().Add(-time.Duration(request.GetTailSeconds()) * time.Second)

		return first(func(e event) bool { return e.at.After(oldest) })
	case request.GetTailEvents() < 0:
		return l.dropped
	default:
		return max(l.dropped, l.end()-int(request.GetTailEvents()))
	}
}
