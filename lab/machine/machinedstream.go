package machine

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
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
	s.m.ms.mu.Unlock()

	if !known {
		return fmt.Errorf("log %q was not registered", in.GetId())
	}

	return s.lines(out, in.GetFollow(), false, in.GetTailLines(), func(l line) (string, bool) {
		return l.at.Format(time.RFC3339) + " " + l.text, strings.Contains(l.text, "service["+in.GetId()+"]") || strings.Contains(l.text, " "+in.GetId()+": ")
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

// files are the machine's readable files; the caller holds the lock.
func (m *machine) files() map[string]string {
	files := map[string]string{
		"/proc/sys/kernel/random/boot_id": m.bootID + "\n",
		"/proc/cmdline":                   m.cmdline() + "\n",
		"/proc/version":                   "Linux version " + kernelVersion + "\n",
		"/proc/uptime":                    fmt.Sprintf("%.2f 0.00\n", m.uptime().Seconds()),
		"/proc/loadavg":                   "0.10 0.10 0.10 1/200 1000\n",
		"/etc/hostname":                   m.hostname + "\n",
		"/etc/os-release":                 fmt.Sprintf("NAME=\"Talos\"\nID=talos\nVERSION_ID=%s\nPRETTY_NAME=\"Talos (%s)\"\n", m.system.Version, m.system.Version),
		"/system/state/config.yaml":       m.disk.Configuration,
		"/sys/class/dmi/id/product_uuid":  m.hw.UUID + "\n",
	}

	var resolv strings.Builder
	for _, a := range m.net.dns {
		fmt.Fprintf(&resolv, "nameserver %s\n", a)
	}

	files["/etc/resolv.conf"] = resolv.String()

	// Whether etcd has been here is what clients ask; its database is only told by its name.
	if m.disk.Etcd != nil {
		files[constants.EtcdDataPath+"/member/snap/db"] = ""
	}

	return files
}

func (m *machine) cmdline() string {
	return strings.Join(append([]string{"talos.platform=" + m.system.Platform, "console=tty1", "init_on_alloc=1", "slab_nomerge", "pti=on"}, m.schematic.KernelArgs...), " ")
}

// Read implements the machine service.
func (s *machined) Read(in *machineapi.ReadRequest, out grpc.ServerStreamingServer[common.Data]) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}

	content, ok := s.m.files()[path.Clean(in.GetPath())]
	unlock()

	if !ok {
		return status.Errorf(codes.NotFound, "stat %s: no such file or directory", in.GetPath())
	}

	return out.Send(&common.Data{Bytes: []byte(content)})
}

// List implements the machine service over the readable files.
func (s *machined) List(in *machineapi.ListRequest, out grpc.ServerStreamingServer[machineapi.FileInfo]) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}

	files, modified := s.m.files(), s.m.bootedAt.Unix()
	unlock()

	root := path.Clean("/" + in.GetRoot())
	found := map[string]*machineapi.FileInfo{root: {Name: root, RelativeName: ".", IsDir: true, Mode: uint32(fs.ModeDir | 0o755), Modified: modified}}

	for name, content := range files {
		if name == root {
			found[root] = &machineapi.FileInfo{Name: root, RelativeName: path.Base(root), Size: int64(len(content)), Mode: 0o644, Modified: modified}

			continue
		}

		relative, inside := strings.CutPrefix(name, strings.TrimSuffix(root, "/")+"/")
		if !inside {
			continue
		}

		parts := strings.Split(relative, "/")

		for i := range parts {
			if i > 0 && !in.GetRecurse() {
				break
			}

			below := strings.Join(parts[:i+1], "/")
			info := &machineapi.FileInfo{Name: path.Join(root, below), RelativeName: below, IsDir: true, Mode: uint32(fs.ModeDir | 0o755), Modified: modified}

			if i == len(parts)-1 {
				info.IsDir, info.Mode, info.Size = false, 0o644, int64(len(content))
			}

			found[info.Name] = info
		}
	}

	if len(found) == 1 && found[root].GetIsDir() && root != "/" {
		return status.Errorf(codes.NotFound, "lstat %s: no such file or directory", root)
	}

	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}

	slices.Sort(names)

	for _, name := range names {
		if err := out.Send(found[name]); err != nil {
			return err
		}
	}

	return nil
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
