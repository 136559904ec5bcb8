package cli

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newExport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print today's policies and rollouts as objects of kind Fleet",
		Long: `Print the versions that policies require, the components that they list and the active
rollouts as objects of kind Fleet, for a fleet that is to be declared from now on. Agents
that belong to an object already are left out.

Applying what it prints upgrades no agent that runs the versions already.`,
		Example: "  muster export > fleets.yaml\n  muster diff -f fleets.yaml\n  muster export | muster apply -f -",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := ask(cmd.Context(), a, adminapi.Operation[adminapi.None, objectList]{Call: adminapi.ExportFleets.Call}, nil)
			if err != nil {
				return err
			}
			if a.output == "json" || a.output == "name" {
				return a.showObjects(cmd.OutOrStdout(), got.Items, false, nil)
			}
			if len(got.Items) == 0 {
				return errors.New("there is nothing to export: no policy requires a version or lists a component with one, and no rollout is active. `muster fleets example` prints an object to start from")
			}
			docs, err := tryEach(got.Items, declaredNode)
			if err != nil {
				return err
			}
			if err := writeYAML(cmd.OutOrStdout(), docs...); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: see what applying them would do with `muster diff`\n", counted(len(docs), "object"))
			return nil
		},
	}
	outputs(cmd, "yaml", "name")
	return cmd
}

// declaredNode is what users write of an object.
func declaredNode(body json.RawMessage) (*yaml.Node, error) {
	n, err := yamlOf(body)
	if err != nil {
		return nil, err
	}
	n = keepKeys(n, "apiVersion", "kind", "metadata", "spec")
	if metadata := child(n, "metadata"); metadata != nil {
		*metadata = *keepKeys(metadata, "name", "labels", "annotations")
	}
	return n, nil
}
