package talosapi

import (
	"context"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// Listener is a socket that a part of the machine listens on.
type Listener struct {
	Process, Address string
	Port             int
}

// Netstat implements the machine service: the listening sockets. The lab's machines are not asked for connections, of
// which they have none of their own.
func (s System) Netstat(_ context.Context, in *machineapi.NetstatRequest) (*machineapi.NetstatResponse, error) {
	facts, err := s.Look()
	if err != nil {
		return nil, err
	}

	reply := &machineapi.Netstat{}

	for i, l := range facts.Listeners {
		protocol, wanted, remote := "tcp6", in.GetL4Proto().GetTcp6(), "::"
		if l.Address != "::" {
			protocol, wanted, remote = "tcp", in.GetL4Proto().GetTcp(), "0.0.0.0"
		}

		if !wanted || in.GetFilter() == machineapi.NetstatRequest_CONNECTED {
			continue
		}

		record := &machineapi.ConnectRecord{
			L4Proto:   protocol,
			Localip:   l.Address,
			Localport: uint32(l.Port),
			Remoteip:  remote,
			State:     machineapi.ConnectRecord_LISTEN,
			Process:   &machineapi.ConnectRecord_Process{},
		}

		if in.GetFeature().GetPid() {
			record.Process.Name, record.Process.Pid = l.Process, uint32(firstServicePID+i)
		}

		reply.Connectrecord = append(reply.Connectrecord, record)
	}

	return &machineapi.NetstatResponse{Messages: []*machineapi.Netstat{reply}}, nil
}
