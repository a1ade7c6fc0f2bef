package container

import (
	"context"
	"strings"
)

const nvidiaSMI = "nvidia-smi"

// NVIDIA is the driver version and the GPUs that a container sees.
type NVIDIA struct {
	Driver string
	GPUs   []GPU
}

// GPU is a GPU as NVIDIA's tools show it.
type GPU struct {
	Name, UUID, Bus string
}

// nvidiaSMI prints the list of GPUs, or a table of them.
func (c Container) nvidiaSMI(_ context.Context, i invocation) error {
	if len(c.NVIDIA.GPUs) == 0 {
		return i.fail(6, "No devices were found")
	}

	if len(i.words) > 1 {
		if word := i.words[1]; word != "-L" && word != "--list-gpus" {
			return i.fail(1, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n"+
				"(the lab's nvidia-smi supports only -L)")
		}

		for n, gpu := range c.NVIDIA.GPUs {
			i.printf("GPU %d: %s (UUID: %s)\n", n, gpu.Name, gpu.UUID)
		}

		return nil
	}

	line := "+" + strings.Repeat("-", 81) + "+\n"
	i.printf("%s| NVIDIA-SMI %-22sDriver Version: %-20s%20s|\n%s", line, c.NVIDIA.Driver, c.NVIDIA.Driver, "", line)

	for n, gpu := range c.NVIDIA.GPUs {
		i.printf("| %3d  %-54s%-20s |\n", n, gpu.Name, gpu.Bus)
	}

	i.printf("%s", line)

	return nil
}
