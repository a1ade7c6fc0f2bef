package disks

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Server implements the storage service, also in maintenance mode.
type Server struct {
	storage.UnimplementedStorageServiceServer

	// Lock guards the disks.
	Lock         sync.Locker
	MachineDisks *Disks
	// Wipe wipes a volume.
	Wipe func(volume string) error
	// InUse is Talos' first volume on the system disk, which cannot be wiped.
	InUse string
}

// Disks implements the storage service.
func (s *Server) Disks(context.Context, *emptypb.Empty) (*storage.DisksResponse, error) {
	s.Lock.Lock()
	defer s.Lock.Unlock()

	disks := &storage.Disks{}

	for _, d := range s.MachineDisks.devices {
		kind := storage.Disk_SSD
		if d.CDROM {
			kind = storage.Disk_CD
		}

		disks.Disks = append(disks.Disks, &storage.Disk{
			DeviceName: "/dev/" + d.Name,
			Model:      d.model(),
			Size:       uint64(d.SizeBytes),
			Type:       kind,
			BusPath:    d.busPath(),
			Subsystem:  "/sys/class/block",
			SystemDisk: s.MachineDisks.isSystemDisk(d), Readonly: d.CDROM,
		})
	}

	return &storage.DisksResponse{Messages: []*storage.Disks{disks}}, nil
}

// CheckWipeable returns why a reset cannot wipe a disk; the caller holds the lock.
func (ds *Disks) CheckWipeable(device string) error {
	for _, d := range ds.devices {
		switch {
		case "/dev/"+d.Name != device:
		case d.CDROM:
			return fmt.Errorf("device %s is readonly", device)
		case ds.isSystemDisk(d):
			return fmt.Errorf("device %s is the system disk", device)
		default:
			return nil
		}
	}

	return fmt.Errorf("device %s wasn't found", device)
}

// BlockDeviceWipe implements the storage service: it wipes whole disks except the system disk.
func (s *Server) BlockDeviceWipe(
	_ context.Context, in *storage.BlockDeviceWipeRequest,
) (*storage.BlockDeviceWipeResponse, error) {
	s.Lock.Lock()
	defer s.Lock.Unlock()

	var volumes []string

	for _, request := range in.GetDevices() {
		name, found := strings.TrimPrefix(request.GetDevice(), "/dev/"), false

		for _, d := range s.MachineDisks.devices {
			switch {
			case d.Name != name:
			case d.CDROM:
				return nil, status.Errorf(codes.FailedPrecondition, "blockdevice %q is read-only", name)
			case s.MachineDisks.isSystemDisk(d):
				return nil, status.Errorf(codes.FailedPrecondition, "blockdevice %q is in use by volume %q", name, s.InUse)
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
		if err := s.Wipe(v); err != nil {
			return nil, err
		}
	}

	return &storage.BlockDeviceWipeResponse{Messages: []*storage.BlockDeviceWipe{{}}}, nil
}

func (d Device) model() string {
	switch {
	case d.bus == "virtio":
		return ""
	case d.CDROM:
		return "QEMU DVD-ROM"
	default:
		return "QEMU HARDDISK"
	}
}

func (d Device) busPath() string {
	return "/pci0000:00/0000:00:05.0/" + d.Interface + "/"
}

func (d Device) transport() string {
	switch d.bus {
	case "virtio", "ide", "sata":
		return map[string]string{"virtio": "virtio", "ide": "ata", "sata": "sata"}[d.bus]
	default:
		return "virtio"
	}
}
