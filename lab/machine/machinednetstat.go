package machine

import (
	"context"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// listener is a socket that a part of the machine listens on.
type listener struct {
	process, address string
	port             int
}

// listeners are the sockets of what runs; the caller holds the lock.
func (m *machine) listeners() []listener {
	var list []listener

	add := func(service string, ports ...int) {
		if m.services.running(service) {
			for _, port := range ports {
				list = append(list, listener{process: service, address: "::", port: port})
			}
		}
	}

	add("apid", talosPort)
	add("trustd", constants.TrustdPort)
	add("kubelet", constants.KubeletPort)
	add("etcd", constants.EtcdClientPort, constants.EtcdPeerPort)

	if m.apiUp {
		list = append(list, listener{"kube-apiserver", "::", m.config.Cluster().LocalAPIServerPort()})
	}

	if prism := m.config.Machine().Features().KubePrism(); prism.Enabled() {
		list = append(list, listener{"machined", "127.0.0.1", prism.Port()})
	}

	return list
}

// Netstat implements the machine service: the listening sockets. The lab's machines are not asked for connections, of which they have none of their own.
func (s *machined) Netstat(_ context.Context, in *machineapi.NetstatRequest) (*machineapi.NetstatResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	reply := &machineapi.Netstat{}

	for i, l := range s.m.listeners() {
		protocol, wanted, remote := "tcp6", in.GetL4Proto().GetTcp6(), "::"
		if l.address != "::" {
			protocol, wanted, remote = "tcp", in.GetL4Proto().GetTcp(), "0.0.0.0"
		}

		if !wanted || in.GetFilter() == machineapi.NetstatRequest_CONNECTED {
			continue
		}

		record := &machineapi.ConnectRecord{
			L4Proto: protocol, Localip: l.address, Localport: uint32(l.port), Remoteip: remote, State: machineapi.ConnectRecord_LISTEN,
			Process: &machineapi.ConnectRecord_Process{},
		}

		if in.GetFeature().GetPid() {
			record.Process.Name, record.Process.Pid = l.process, uint32(firstServicePID+i)
		}

		reply.Connectrecord = append(reply.Connectrecord, record)
	}

	return &machineapi.NetstatResponse{Messages: []*machineapi.Netstat{reply}}, nil
}
