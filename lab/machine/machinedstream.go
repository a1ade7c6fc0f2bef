package machine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// emptyEvent greets a follower of events.
var emptyEvent = &anypb.Any{TypeUrl: "talos/runtime/google.protobuf.Empty"}

// Events implements the machine service.
func (s *machined) Events(in *machineapi.EventsRequest, out grpc.ServerStreamingServer[machineapi.Event]) error {
	if err := out.Send(&machineapi.Event{ActorId: in.GetWithActorId(), Data: emptyEvent}); err != nil {
		return err
	}

	s.m.ms.mu.Lock()
	position := s.m.events.tail(in)
	s.m.ms.mu.Unlock()

	for {
		s.m.ms.mu.Lock()
		changed := s.m.changed.wait()

		var events []*machineapi.Event

		events, position = s.m.events.since(position)
		s.m.ms.mu.Unlock()

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
func (s *machined) Dmesg(in *machineapi.DmesgRequest, out grpc.ServerStreamingServer[common.Data]) error {
	return s.lines(out, in.GetFollow(), in.GetTail(), -1, func(l line) (string, bool) {
		return fmt.Sprintf("kern: %7s: [%s]: %s", "info", l.at.Format(time.RFC3339Nano), l.text), true
	})
}

// lines streams console lines; last limits how many old ones are sent, where it is not negative.
func (s *machined) lines(out grpc.ServerStreamingServer[common.Data], follow, onlyNew bool, last int32, format func(line) (string, bool)) error {
	position := 0

	if onlyNew {
		s.m.ms.mu.Lock()
		_, position = s.m.console.since(0)
		s.m.ms.mu.Unlock()
	}

	for first := true; ; first = false {
		s.m.ms.mu.Lock()
		changed := s.m.changed.wait()

		var fresh []line

		fresh, position = s.m.console.since(position)
		s.m.ms.mu.Unlock()

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

// Logs implements the machine service: the log of a service is what the console says of it.
func (s *machined) Logs(in *machineapi.LogsRequest, out grpc.ServerStreamingServer[common.Data]) error {
	s.m.ms.mu.Lock()
	known := s.m.services[in.GetId()] != nil
	container := s.m.config != nil && s.m.hasContainer(in.GetId())
	s.m.ms.mu.Unlock()

	name := in.GetId()

	switch ofPods := in.GetNamespace() == constants.K8sContainerdNamespace && name != "kubelet"; {
	case ofPods && !container:
		return fmt.Errorf("container %q not found", name)
	case ofPods:
		name = name[strings.LastIndex(name, ":")+1:]
	case !known:
		return fmt.Errorf("log %q was not registered", name)
	}

	return s.lines(out, in.GetFollow(), false, in.GetTailLines(), func(l line) (string, bool) {
		return l.at.Format(time.RFC3339) + " " + l.text, strings.Contains(l.text, "service["+name+"]") || strings.Contains(l.text, " "+name+": ") || strings.Contains(l.text, ":"+name+": ")
	})
}

// LogsContainers implements the machine service.
func (s *machined) LogsContainers(context.Context, *emptypb.Empty) (*machineapi.LogsContainersResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	names := &machineapi.LogsContainer{}
	for _, one := range s.m.services.list() {
		names.Ids = append(names.Ids, one.name)
	}

	return &machineapi.LogsContainersResponse{Messages: []*machineapi.LogsContainer{names}}, nil
}

// MetaWrite implements the machine service.
func (s *machined) MetaWrite(_ context.Context, in *machineapi.MetaWriteRequest) (*machineapi.MetaWriteResponse, error) {
	if in.GetKey() > 255 {
		return nil, status.Error(codes.InvalidArgument, "key must be a uint8")
	}

	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	if s.m.disk.META == nil {
		s.m.disk.META = map[uint8]string{}
	}

	s.m.disk.META[uint8(in.GetKey())] = string(in.GetValue())
	s.m.save()
	s.m.changed.fire()

	return &machineapi.MetaWriteResponse{Messages: []*machineapi.MetaWrite{{}}}, nil
}

// MetaDelete implements the machine service.
func (s *machined) MetaDelete(_ context.Context, in *machineapi.MetaDeleteRequest) (*machineapi.MetaDeleteResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	if _, ok := s.m.disk.META[uint8(in.GetKey())]; !ok {
		return nil, status.Error(codes.NotFound, "meta key not found")
	}

	delete(s.m.disk.META, uint8(in.GetKey()))
	s.m.save()
	s.m.changed.fire()

	return &machineapi.MetaDeleteResponse{Messages: []*machineapi.MetaDelete{{}}}, nil
}
