package shell

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// pvesh calls Proxmox' API as root. It always prints JSON.
func (s *Server) pvesh(ctx context.Context, c call) error {
	path, commands := strings.Join(c.words[min(2, len(c.words)):min(3, len(c.words))], ""), map[string]subcommand{}

	for _, verb := range []string{"get", "create", "set", "delete"} {
		commands[verb] = subcommand{
			usage: "pvesh " + verb + " <api_path> [OPTIONS]", apiCall: verb + " " + path, ownOptions: "api_path output-format", print: printJSON,
		}
	}

	return s.dispatch(ctx, c, commands)
}

func printJSON(_ context.Context, c call, _ arguments, answer any) error {
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
