package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

const defaultClass = "storageclass.kubernetes.io/is-default-class"

// defaultClasses are the names of the tree's storage classes that are the default.
func (c *cluster) defaultClasses() (names []string) {
	for _, o := range c.objects() {
		if o.GetKind() == "StorageClass" && o.GetAnnotations()[defaultClass] == "true" {
			names = append(names, o.GetName())
		}
	}

	return names
}

// judgeClasses finds storage classes that are the default beside another one, and those that Velero backs nothing up
// of.
func (c *cluster) judgeClasses() {
	backups := c.has(func(o object) bool {
		_, stated := fields(o, "spec", "values", "configuration")["defaultVolumesToFsBackup"]

		return isRelease(o) && chartOf(o) == "velero" && stated
	})

	for _, o := range c.objects() {
		if backups && o.GetKind() == "StorageClass" && text(o, "", "provisioner") == "rancher.io/local-path" &&
			o.GetAnnotations()["defaultVolumeType"] != "local" {
			c.report("%s: volumes of the StorageClass %s are of the type hostPath, which Velero passes over: write the annotation "+
				"defaultVolumeType: local, or take one of the two out", c.folder, o.GetName())
		}
	}

	if defaults := c.defaultClasses(); len(defaults) > 1 {
		c.report("%s: StorageClasses %s are all the default, so that the newest one is: list one of their folders", c.folder,
			strings.Join(defaults, ", "))
	}
}

// judgeCopies wants a disk for each copy of a volume of Longhorn.
func (c *cluster) judgeCopies(planned spec.Cluster, needs []requirements) {
	disks := 0

	for _, machine := range machinesOf(planned) {
		if machine.takes("workers", planned) && (machine.hasVolume("longhorn") || machine.unknown) {
			disks++
		}
	}

	uses := slices.ContainsFunc(needs, func(r requirements) bool {
		return slices.ContainsFunc(r.Machines, func(m machineNeeds) bool {
			return slices.Contains(m.UserVolumes, "longhorn")
		})
	})
	if !uses || disks == 0 { // that is said of each machine
		return
	}

	most := 0

	for _, o := range c.objects() {
		for _, path := range [][]string{
			{"spec", "values", "defaultSettings", "defaultReplicaCount"},
			{"spec", "values", "persistence", "defaultClassReplicaCount"},
			{"parameters", "numberOfReplicas"},
		} {
			most = max(most, number(o, path...))
		}
	}

	if most > disks {
		c.report("%s: volumes of Longhorn have %d copies, and %d machines of cluster %s have its disk: set LONGHORN_REPLICAS to "+
			"%d, or add machines", c.folder, most, disks, planned.Name, disks)
	}
}

// number is a field of an object, which may be a number in quotes; 0 = it is none, or not stated.
func number(o object, fields ...string) int {
	value, _, _ := unstructured.NestedFieldNoCopy(o.Object, fields...)
	n, _ := strconv.Atoi(fmt.Sprint(value))

	return n
}

// judgeVault wants a machine for each pod of Vault: its chart keeps them apart, unless the release has an affinity.
func (c *cluster) judgeVault(planned spec.Cluster) {
	for _, o := range c.objects() {
		server := fields(o, "spec", "values", "server")
		if _, stated := server["affinity"]; stated || !isRelease(o) || chartOf(o) != "vault" {
			continue
		}

		machines := 0

		for _, m := range machinesOf(planned) {
			if m.takes("workers", planned) && m.tolerated(server["tolerations"]) {
				machines++
			}
		}

		if pods := number(o, "spec", "values", "server", "ha", "replicas"); pods > machines {
			c.report("%s: Vault has %d pods, each on a machine of its own, and %d machines of cluster %s take them: set VAULT_REPLICAS to "+
				"%d at the most, or add machines", c.folder, pods, machines, planned.Name, machines)
		}
	}
}

// judgeDefaultClass finds a default class in Git beside the program's own.
func (c *cluster) judgeDefaultClass(planned spec.Cluster) {
	defaults := c.defaultClasses()
	if planned.Proxmox == nil || len(defaults) == 0 {
		return
	}

	for _, class := range planned.Proxmox.StorageClasses {
		if class.Default {
			c.report("%s: StorageClass %s is the default, and so is %s of proxmox.csi.storageClasses of cluster %s: list another "+
				"folder of configs/storage, or take default: true away", c.folder, defaults[0], class.Name, planned.Name)
		}
	}
}

// judgeVolumes says which user volumes of a machine's configuration find no disk, or none that is large enough. Of
// selectors that ask for what is not known before there is the machine nothing is said.
func (m machine) judgeVolumes() []string {
	var problems []string

	for _, document := range m.documents {
		volume := &unstructured.Unstructured{Object: document}
		match, size := text(volume, "", "provisioning", "diskSelector", "match"), text(volume, "", "provisioning", "minSize")

		if document["kind"] != "UserVolumeConfig" || match == "" {
			continue
		}

		report := func(format string, values ...any) {
			problems = append(problems, fmt.Sprintf(
				"the user volume %v of %s of cluster %s %s", document["name"], m.Path, m.Cluster,
				fmt.Sprintf(format, values...),
			))
		}

		largest, known, err := talos.SelectedDisk(match, append([]int{m.DiskGiB}, m.extraSizes()...))
		larger := false

		if err == nil && known && size != "" && !strings.HasSuffix(size, "%") {
			larger, err = talos.LargerThan(size, largest)
		}

		switch {
		case err != nil:
			report("is none that Talos takes: %v", err)
		case !known:
		case largest == 0:
			report("selects no disk by %q: the machine has one of %d GiB and extraDisks of %v GiB; correct diskSelector, or add the "+
				"disk to extraDisks", match, m.DiskGiB, m.extraSizes())
		case larger:
			report("is to have %s at least, and the largest disk that %q selects has %d GiB: correct minSize, or the disk's sizeGiB",
				size, match, largest)
		}
	}

	return problems
}

func (m machine) extraSizes() []int {
	sizes := []int{}
	for _, disk := range m.ExtraDisks {
		sizes = append(sizes, disk.SizeGiB)
	}

	return sizes
}
