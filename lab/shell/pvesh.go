package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"talos-proxmox/lab/proxmox"
)

const pveshUsage = "pvesh <get|create|set|delete> <api_path> [OPTIONS]"

// pvesh calls Proxmox' API as root. Answers are always JSON; a task is waited for and shown, as there.
func (s *Server) pvesh(ctx context.Context, c call) error {
	if len(c.words) < 3 || !strings.Contains(" get create set delete ", " "+c.words[1]+" ") {
		return usageError{"ERROR: the lab's pvesh has no such command\nUSAGE: " + pveshUsage}
	}

	command, path := c.words[1], c.words[2]

	values, err := s.apiParameters(command, path, c.words[3:])
	if err != nil {
		return err
	}

	answer, err := s.api.Call(ctx, command, path, values)
	if none := (proxmox.ErrNoHandler{}); errors.As(err, &none) {
		return usageError{none.Error()}
	}

	if err != nil {
		return err
	}

	if upid, isText := answer.(string); isText && strings.HasPrefix(upid, "UPID:") {
		if err := s.task(ctx, c, upid, nil); err != nil {
			return err
		}
	}

	if answer == nil {
		return nil
	}

	text, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("unable to encode the answer: %w", err)
	}

	c.printf("%s\n", text)

	return nil
}

// apiParameters reads "--name value", "-name value" and "--name=value"; one that is given again is a list.
func (s *Server) apiParameters(command, path string, words []string) (map[string][]string, error) {
	values := map[string][]string{}

	for i := 0; i < len(words); i++ {
		if !strings.HasPrefix(words[i], "-") {
			return nil, usageError{"400 too many arguments\n" + pveshUsage}
		}

		name, value, stated := strings.Cut(strings.TrimLeft(words[i], "-"), "=")
		flag := name == "noborder" || name == "noheader" || name == "human-readable" || name == "quiet" || s.api.Boolean(
			command, path, name,
		)

		switch {
		case stated:
		case i+1 < len(words) && (!flag || !strings.HasPrefix(words[i+1], "-")):
			i++
			value = words[i]
		case flag:
			value = "1"
		default:
			return nil, usageError{
				fmt.Sprintf("Option %s requires an argument\n400 unable to parse option\n%s", name, pveshUsage),
			}
		}

		// How the answer is printed is not a parameter of the call.
		if name != "output-format" && name != "noborder" && name != "noheader" && name != "human-readable" &&
			name != "quiet" {
			values[name] = append(values[name], value)
		}
	}

	return values, nil
}
