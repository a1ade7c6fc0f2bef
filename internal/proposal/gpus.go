package proposal

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/internal/talos"
)

// chooseGPUs gives the hosts' GPUs to the stack, and asks for the generation of those whose name does not tell it.
func (p *planner) chooseGPUs() {
	labels, unknown := map[string]string{}, map[string]string{} // by device

	for i, h := range p.hosts {
		for _, gpu := range h.GPUs {
			if gpu.User != "" {
				p.decide("left out", gpu.PCI+" of "+h.Name, "%s has this GPU", gpu.User)

				continue
			}

			if labels[gpu.Device] == "" {
				labels[gpu.Device] = p.newLabel(gpu, slices.Collect(maps.Values(labels)))
			}

			if gpu.Generation == "" {
				unknown[gpu.Device] = gpu.title()
			}

			p.stack.Hosts[i].GPUs = append(p.stack.Hosts[i].GPUs, StackGPU{gpu, labels[gpu.Device]})
		}
	}

	p.askGenerations(unknown)
}

// askGenerations asks for the generations of devices.
func (p *planner) askGenerations(unknown map[string]string) {
	if len(unknown) == 0 {
		return
	}

	var titles, example []string

	for _, device := range slices.Sorted(maps.Keys(unknown)) {
		titles, example = append(titles, fmt.Sprintf("%s (%s)", device, unknown[device])), append(example, device+"=ada")
	}

	known := strings.Join(talos.Generations(), ", ")
	p.ask(Question{
		Flag: "generations", Text: "Architecture of " + strings.Join(titles, ", ") + ": " + known + " (" + strings.Join(example, ",") + ")",
		Missing: "the name of " + strings.Join(titles, ", ") + " does not tell the architecture, which decides on the driver; set " +
			strings.Join(example, ",") + ", with one of " + known,
	}, func(text string) error {
		pairs := splitPairs(text)

		for i := range p.stack.Hosts {
			for j, gpu := range p.stack.Hosts[i].GPUs {
				if unknown[gpu.Device] == "" {
					continue
				}

				if !slices.Contains(talos.Generations(), pairs[gpu.Device]) {
					return fmt.Errorf("does not have the architecture of %s; write it as %s=ada, with one of %s", gpu.Device, gpu.Device, known)
				}

				p.stack.Hosts[i].GPUs[j].Generation = pairs[gpu.Device]
			}
		}

		return nil
	})
}

var (
	marketingName = regexp.MustCompile(`\[(.+)\]`)
	notInLabel    = regexp.MustCompile(`[^a-z0-9]+`)
)

// maxLabel bounds the name of a GPU, which is also the name of a pool.
const maxLabel = 20

// newLabel returns a name for GPUs of a kind that no mapping has: rtx-4000-sff-ada for AD104GL [RTX 4000 SFF Ada
// Generation].
func (p *planner) newLabel(gpu GPU, taken []string) string {
	label := "gpu"
	if found := marketingName.FindStringSubmatch(gpu.Name); found != nil {
		label = notInLabel.ReplaceAllString(strings.ToLower(found[1]), "-")
		label = strings.TrimPrefix(strings.TrimSuffix(strings.Trim(label, "-"), "-generation"), "geforce-")
	}

	if label == "" || label[0] < 'a' || label[0] > 'z' { // mappings begin with a letter
		label = "gpu-" + label
	}

	taken = append(taken, p.inventory.Mappings...)
	label = strings.Trim(label[:min(len(label), maxLabel)], "-")

	for n, base := 2, label; slices.Contains(taken, label); n++ {
		label = fmt.Sprintf("%s-%d", base, n)
	}

	return label
}
