package container

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

const nvidiaSMI = "nvidia-smi"

// NVIDIA are the GPUs that a container sees, and the driver's version.
type NVIDIA struct {
	Driver string
	GPUs   []GPU
}

// GPU is a GPU as NVIDIA's tools name it.
type GPU struct {
	Name, UUID, Bus string
}

// nvidiaSMI prints the list of GPUs, fields of them, or a table that shows what the lab knows of them.
func (c Container) nvidiaSMI(_ context.Context, i invocation) error {
	if len(c.NVIDIA.GPUs) == 0 {
		return i.fail(6, "No devices were found")
	}

	var query, format string

	for _, word := range i.words[1:] {
		name, value, _ := strings.Cut(word, "=")

		switch name {
		case "-L", "--list-gpus":
			for n, gpu := range c.NVIDIA.GPUs {
				i.printf("GPU %d: %s (UUID: %s)\n", n, gpu.Name, gpu.UUID)
			}

			return nil
		case "--query-gpu":
			query = value
		case "--format":
			format = value
		default:
			return i.fail(1, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n"+
				"(the lab's nvidia-smi knows -L, and --query-gpu with --format=csv)")
		}
	}

	if query != "" {
		return c.NVIDIA.query(i, strings.Split(query, ","), strings.Contains(format, "noheader"))
	}

	line := "+" + strings.Repeat("-", 81) + "+\n"
	i.printf("%s| NVIDIA-SMI %-22sDriver Version: %-20s%20s|\n%s", line, c.NVIDIA.Driver, c.NVIDIA.Driver, "", line)

	for n, gpu := range c.NVIDIA.GPUs {
		i.printf("| %3d  %-54s%-20s |\n", n, gpu.Name, gpu.Bus)
	}

	i.printf("%s", line)

	return nil
}

func (n *NVIDIA) query(i invocation, fields []string, noHeader bool) error {
	known := []string{"index", "name", "uuid", "gpu_bus_id", "pci.bus_id", "driver_version", "count"}

	for f, field := range fields {
		fields[f] = strings.TrimSpace(field)
		if !slices.Contains(known, fields[f]) {
			return i.fail(2, "Field \"%s\" is not a valid field to query.\n", fields[f])
		}
	}

	if !noHeader {
		i.printf("%s\n", strings.Join(fields, ", "))
	}

	for index, gpu := range n.GPUs {
		values := map[string]string{
			"index": fmt.Sprint(index), "name": gpu.Name, "uuid": gpu.UUID, "gpu_bus_id": gpu.Bus, "pci.bus_id": gpu.Bus,
			"driver_version": n.Driver, "count": fmt.Sprint(len(n.GPUs)),
		}

		row := make([]string, 0, len(fields))
		for _, field := range fields {
			row = append(row, values[field])
		}

		i.printf("%s\n", strings.Join(row, ", "))
	}

	return nil
}
