package talos

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/labels"
)

var (
	hostnamePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	volumePattern   = regexp.MustCompile(`^[A-Za-z0-9-]{1,34}$`)
	separator       = regexp.MustCompile(`(?m)^---[ \t]*(?:#.*)?\r?$`)
)

// SplitPatch checks a user's strategic-merge patch with Talos' own loader and splits it into documents, as Talos
// expects.
func SplitPatch(text string) ([]string, error) {
	var (
		documents []string
		problems  []error
	)

	for _, document := range separator.Split(text, -1) {
		if document = strings.Trim(document, "\r\n"); strings.TrimSpace(document) == "" {
			continue
		}

		document += "\n"
		documents = append(documents, document)
		problems = append(problems, checkDocument(document), checkOwned(document))
	}

	if len(documents) == 0 {
		problems = append(
			problems, errors.New("the patch is empty: write the part of the machine configuration to change, or leave it out"),
		)
	}

	return documents, errors.Join(problems...)
}

func checkDocument(document string) error {
	// The provider would read a file of the machine on which it runs.
	if strings.HasPrefix(document, "@") {
		return fmt.Errorf("%q names a file: set the patch's text", strings.TrimSpace(document))
	}

	patch, err := configpatcher.LoadPatch([]byte(document))
	if err != nil {
		return fmt.Errorf("the patch is not accepted by Talos: %w: correct it according to Talos' configuration reference", err)
	}
	// Talos applies JSON patches only to single-document configurations; since contract 1.12 there are always several.
	if _, ok := patch.(configpatcher.StrategicMergePatch); !ok {
		return errors.New("JSON patches do not work on configurations of several documents: write a strategic-merge patch, the part of the configuration to change")
	}

	return nil
}

func checkRole(role string) error {
	if role == RoleControlPlane || role == RoleWorker {
		return nil
	}

	return fmt.Errorf("role: %q is not a role of a machine: choose %s or %s", role, RoleControlPlane, RoleWorker)
}

func checkNode(n NodeConfig) error {
	var problems []error

	addf := func(format string, values ...any) { problems = append(problems, fmt.Errorf(format, values...)) }

	if !hostnamePattern.MatchString(n.Name) {
		addf("name: %q is not a host name: use lower-case letters, digits and hyphens, at most 63", n.Name)
	}

	if !n.Subnet.IsValid() {
		addf("subnet: is missing: set the node's network, without which etcd may advertise any address")
	}

	if n.Install.Image == "" {
		addf("install image: is missing: use the Image Factory's installer of the node's schematic, or extensions are lost at the next upgrade")
	}

	if len(n.Interfaces) == 0 {
		addf("interfaces: is missing: set at least the network card the cluster talks over")
	}

	for i, card := range n.Interfaces {
		path := fmt.Sprintf("interfaces[%d]", i)

		isAny := card.MAC == "" && len(n.Interfaces) == 1
		if hardware, err := net.ParseMAC(card.MAC); !isAny && (err != nil || len(hardware) != 6) {
			addf("%s.mac: %q is not a MAC address: write it as 02:00:00:00:00:01", path, card.MAC)
		}

		if card.Bond != "" && (i == 0 || !slices.ContainsFunc(n.Bonds, func(b Bond) bool { return b.Name == card.Bond })) {
			addf("%s.bond: %q is not a bond that the card can be in: choose one of the node's bonds for a card other than the first",
				path, card.Bond)
		}

		problems = append(problems, checkLink(path, card.Link, card.VLANs))
	}

	for i, bond := range n.Bonds {
		path := fmt.Sprintf("bonds[%d]", i)
		if !slices.ContainsFunc(n.Interfaces, func(card Interface) bool { return card.Bond == bond.Name }) {
			addf("%s: %q has no network cards: name it as the bond of some", path, bond.Name)
		}

		problems = append(problems, checkLink(path, bond.Link, bond.VLANs))
	}

	for i, volume := range n.Volumes {
		if !volumePattern.MatchString(volume.Name) {
			addf("volumes[%d].name: %q is not a volume name: use letters, digits and hyphens, at most 34", i, volume.Name)
		}

		if volume.SizeGiB < 1 {
			addf("volumes[%d].sizeGiB: %d is too small: set the disk's size, at least 1", i, volume.SizeGiB)
		}
	}

	if err := labels.Validate(n.Labels); err != nil {
		addf("labels: %w: correct them according to Kubernetes' rules for labels", err)
	}

	if err := labels.ValidateTaints(n.Taints); err != nil {
		addf("taints: %w: set them as key: value:NoSchedule", err)
	}

	return errors.Join(problems...)
}

func checkLink(path string, l Link, vlans []VLAN) error {
	var problems []error

	if l.DHCP && l.Gateway.IsValid() {
		problems = append(problems, fmt.Errorf(
			"%s.gateway: %s is set together with DHCP, which brings its own: leave out one of them", path, l.Gateway,
		))
	}

	if l.MTU != 0 && (l.MTU < 576 || l.MTU > 65520) {
		problems = append(problems, fmt.Errorf(
			"%s.mtu: %d is out of range: choose one from 576 to 65520, or leave it out for the default", path, l.MTU,
		))
	}

	for i, route := range l.Routes {
		if !route.Destination.IsValid() || !route.Gateway.IsValid() {
			problems = append(problems, fmt.Errorf(
				"%s.routes[%d]: needs a destination, such as 10.1.0.0/16, and a gateway: set both", path, i,
			))
		}
	}

	for i, vlan := range vlans {
		at := fmt.Sprintf("%s.vlans[%d]", path, i)
		if vlan.ID < 1 || vlan.ID > 4094 {
			problems = append(problems, fmt.Errorf("%s.id: %d is not a VLAN: choose one from 1 to 4094", at, vlan.ID))
		}

		problems = append(problems, checkLink(at, vlan.Link, nil))
	}

	return errors.Join(problems...)
}
