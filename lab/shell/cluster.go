package shell

import (
	"fmt"
	"path"
	"strings"

	"mvdan.cc/sh/v3/interp"

	"talos-proxmox/lab/datacentre"
)

// pvecm implements pvecm status.
func (s *Server) pvecm(c call, local datacentre.Host) error {
	if s.dc.ClusterName() == "" {
		return usageError{"Error: Corosync config '/etc/pve/corosync.conf' does not exist - is this node part of a cluster?"}
	}

	votes, hosts, online := s.dc.Votes(), s.dc.Hosts(), 0

	var members strings.Builder

	for _, h := range hosts {
		if !h.Online {
			continue
		}

		online++

		name := h.Name
		if h.Address.IsValid() {
			name = h.Address.String()
		}

		if h.Name == local.Name {
			name += " (local)"
		}

		device := ""
		if votes.QDevice {
			device = "   A,V,NMW"
		}

		fmt.Fprintf(&members, "0x%08x          1%s %s\n", h.ID, device, name)
	}

	state, flags, blocked, column := "Yes", "Quorate ", "  ", ""
	if votes.Total < votes.Needed {
		state, flags, blocked = "No", "", " Activity blocked"
	}

	if votes.QDevice {
		flags, column = flags+"Qdevice ", "    Qdevice"

		members.WriteString("0x00000000          1            Qdevice\n")
	}

	c.printf("Cluster information\n-------------------\nName:             %s\nConfig Version:   %d\nTransport:        knet\nSecure auth:      on\n\n", s.dc.ClusterName(), len(hosts))
	c.printf("Quorum information\n------------------\nQuorum provider:  corosync_votequorum\nNodes:            %d\nNode ID:          0x%08x\nQuorate:          %s\n\n", online, local.ID, state)
	c.printf("Votequorum information\n----------------------\nExpected votes:   %d\nHighest expected: %[1]d\nTotal votes:      %d\nQuorum:           %d%s\nFlags:            %s\n\n",
		votes.Expected, votes.Total, votes.Needed, blocked, flags)
	c.printf("Membership information\n----------------------\n    Nodeid      Votes%s Name\n%s", column, members.String())

	return nil
}

// haManager implements ha-manager status; the lab has no HA resources.
func (s *Server) haManager(c call, local datacentre.Host) error {
	if !s.dc.Quorate() {
		c.printf("quorum No quorum on node '%s'!\n", local.Name)

		return nil
	}

	c.printf("quorum OK\nfencing standby (CRM watchdog standby)\n")

	return nil
}

// clusterLock implements mkdir, rmdir and touch of a lock of the cluster file system: a folder that can be created once
// in the cluster. Setting its time to 0 requests the release of an expired lock.
func (s *Server) clusterLock(c interp.HandlerContext, name string, words []string) (bool, error) {
	const folder = "/etc/pve/priv/lock"

	if name != "mkdir" && name != "rmdir" && name != "touch" {
		return false, nil
	}

	last := s.hostPath(s.localPath(c.Dir, words[len(words)-1]))
	if path.Dir(last) != folder {
		return false, nil
	}

	lock := path.Base(last)

	switch name {
	case "mkdir":
		if refused := s.dc.LockCluster(lock); refused != "" {
			fmt.Fprintf(c.Stderr, "mkdir: cannot create directory '%s': %s\n", last, refused) //nolint:errcheck

			return true, interp.ExitStatus(statusFailed)
		}
	case "rmdir":
		s.dc.UnlockCluster(lock)
	case "touch":
		s.dc.RequestUnlock(lock)
	}

	return true, nil
}
