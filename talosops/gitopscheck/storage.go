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

// defaultClasses returns the names of the tree's default storage classes.
func (c *cluster) defaultClasses() (names []string) {
	for _, o := range c.objects() {
		if o.GetKind() == "StorageClass" && o.GetAnnotations()[defaultClass] == "true" {
			names = append(names, o.GetName())
		}
	}

	return names
}

// checkStorageClasses finds several default storage classes, and classes whose volumes Velero does not back up.
func (c *cluster) checkStorageClasses() {
	backups := c.has(func(o object) bool {
		_, isSet := fields(o, "spec", "values", "configuration")["defaultVolumesToFsBackup"]

		return isRelease(o) && chartName(o) == "velero" && isSet
	})

	for _, o := range c.objects() {
		if backups && o.GetKind() == "StorageClass" && text(o, "", "provisioner") == "rancher.io/local-path" &&
			o.GetAnnotations()["defaultVolumeType"] != "local" {
			c.report("%s: volumes of the StorageClass %s are of the type hostPath, which Velero does not back up: add the annotation "+
				"defaultVolumeType: local, or remove one of the two", c.folder, o.GetName())
		}
	}

	if defaults := c.defaultClasses(); len(defaults) > 1 {
		c.report("%s: StorageClasses %s are all the default, so that Kubernetes uses the newest one: list one of their folders",
			c.folder, strings.Join(defaults, ", "))
	}
}

// checkReplicas checks that there is a machine with a disk for each replica of Longhorn's volumes.
func (c *cluster) checkReplicas(planned spec.Cluster, needs []requirements) {
	disks := 0

	for _, machine := range machinesOf(planned) {
		if machine.matches("workers", planned) && (machine.hasVolume("longhorn") || machine.unknown) {
			disks++
		}
	}

	uses := slices.ContainsFunc(needs, func(r requirements) bool {
		return slices.ContainsFunc(r.Machines, func(m machineNeeds) bool {
			return slices.Contains(m.UserVolumes, "longhorn")
		})
	})
	if !uses || disks == 0 { // machine.check reports missing disks
		return
	}

	replicas := 0

	for _, o := range c.objects() {
		for _, path := range [][]string{
			{"spec", "values", "defaultSettings", "defaultReplicaCount"},
			{"spec", "values", "persistence", "defaultClassReplicaCount"},
			{"parameters", "numberOfReplicas"},
		} {
			replicas = max(replicas, intField(o, path...))
		}
	}

	if replicas > disks {
		c.report("%s: volumes of Longhorn have %d copies, and %d machines of cluster %s have its disk: set LONGHORN_REPLICAS to "+
			"%d, or add machines", c.folder, replicas, disks, planned.Name, disks)
	}
}

// intField returns an integer field of an object, which may be in quotes; 0 = no integer, or not set.
func intField(o object, fields ...string) int {
	value, _, _ := unstructured.NestedFieldNoCopy(o.Object, fields...)
	n, _ := strconv.Atoi(fmt.Sprint(value))

	return n
}

// checkVault checks that there is a machine for each pod of Vault: its chart has an anti-affinity unless the release
// sets another affinity.
func (c *cluster) checkVault(planned spec.Cluster) {
	for _, o := range c.objects() {
		server := fields(o, "spec", "values", "server")
		if _, isSet := server["affinity"]; isSet || !isRelease(o) || chartName(o) != "vault" {
			continue
		}

		machines := 0

		for _, m := range machinesOf(planned) {
			if m.matches("workers", planned) && m.toleratedBy(server["tolerations"]) {
				machines++
			}
		}

		if pods := intField(o, "spec", "values", "server", "ha", "replicas"); pods > machines {
			c.report("%s: Vault has %d pods, each on a machine of its own, and %d machines of cluster %s can run them: set "+
				"VAULT_REPLICAS to %d at most, or add machines", c.folder, pods, machines, planned.Name, machines)
		}
	}
}

// checkDefaultClass finds a default storage class in Git if the program creates one as well.
func (c *cluster) checkDefaultClass(planned spec.Cluster) {
	defaults := c.defaultClasses()
	if planned.Proxmox == nil || len(defaults) == 0 {
		return
	}

	for _, class := range planned.Proxmox.StorageClasses {
		if class.Default {
			c.report("%s: StorageClass %s is the default, and so is %s of proxmox.csi.storageClasses of cluster %s: list another "+
				"folder of configs/storage, or remove default: true", c.folder, defaults[0], class.Name, planned.Name)
		}
	}
}

// checkVolumes finds user volumes of a machine's configuration that match no disk, or none that is large enough. It
// ignores selectors on properties that are unknown before the machine exists.
func (m machine) checkVolumes() []string {
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
			report("is invalid for Talos: %v", err)
		case !known:
		case largest == 0:
			report("selects no disk by %q: the machine has one of %d GiB and extraDisks of %v GiB; correct diskSelector, or add the "+
				"disk to extraDisks", match, m.DiskGiB, m.extraSizes())
		case larger:
			report("requires at least %s, and the largest disk that %q selects has %d GiB: correct minSize, or the disk's sizeGiB",
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
