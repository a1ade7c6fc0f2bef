package machine

import (
	"context"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"proxmox-talos/lab/image"
)

// storageServer implements the storage service, in maintenance mode too.
type storageServer struct {
	storage.UnimplementedStorageServiceServer

	m *machine
}

// Disks implements the storage service.
func (s *storageServer) Disks(context.Context, *emptypb.Empty) (*storage.DisksResponse, error) {
	s.m.ms.mu.Lock()
	defer s.m.ms.mu.Unlock()

	disks := &storage.Disks{}

	for _, d := range s.m.blockDevices() {
		kind := storage.Disk_SSD
		if d.CDROM {
			kind = storage.Disk_CD
		}

		disks.Disks = append(disks.Disks, &storage.Disk{
			DeviceName: "/dev/" + d.name, Model: d.model(), Size: uint64(d.SizeBytes), Type: kind, BusPath: d.busPath(), Subsystem: "/sys/class/block",
			SystemDisk: s.m.volume != "" && d.Volume == s.m.volume, Readonly: d.CDROM,
		})
	}

	return &storage.DisksResponse{Messages: []*storage.Disks{disks}}, nil
}

// BlockDeviceWipe implements the storage service: it wipes whole disks that the system does not run from.
func (s *storageServer) BlockDeviceWipe(_ context.Context, in *storage.BlockDeviceWipeRequest) (*storage.BlockDeviceWipeResponse, error) {
	s.m.ms.mu.Lock()
	defer s.m.ms.mu.Unlock()

	var volumes []string

	for _, request := range in.GetDevices() {
		name, found := strings.TrimPrefix(request.GetDevice(), "/dev/"), false

		for _, d := range s.m.blockDevices() {
			switch {
			case d.name != name:
			case d.CDROM:
				return nil, status.Errorf(codes.FailedPrecondition, "blockdevice %q is read-only", name)
			case s.m.volume != "" && d.Volume == s.m.volume:
				return nil, status.Errorf(codes.FailedPrecondition, "blockdevice %q is in use by volume %q", name, "EPHEMERAL")
			default:
				found = true
				volumes = append(volumes, d.Volume)
			}
		}

		if !found {
			return nil, status.Errorf(codes.NotFound, "blockdevice %q not found", name)
		}
	}

	for _, v := range volumes {
		if err := s.m.ms.world.WriteVolume(v, image.Image{}); err != nil {
			return nil, err
		}
	}

	return &storage.BlockDeviceWipeResponse{Messages: []*storage.BlockDeviceWipe{{}}}, nil
}

func (d blockDevice) model() string {
	switch {
	case d.bus == "virtio":
		return ""
	case d.CDROM:
		return "QEMU DVD-ROM"
	default:
		return "QEMU HARDDISK"
	}
}

func (d blockDevice) busPath() string {
	return "/pci0000:00/0000:00:05.0/" + d.Interface + "/"
}

func (d blockDevice) transport() string {
	switch d.bus {
	case "virtio", "ide", "sata":
		return map[string]string{"virtio": "virtio", "ide": "ata", "sata": "sata"}[d.bus]
	default:
		return "virtio"
	}
}
