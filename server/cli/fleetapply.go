package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/rollout/spec"
)

func (a *client) newApply() *cobra.Command {
	var (
		files              objectFiles
		selector           string
		dryRun, prune, yes bool
		wait               waitFlags
	)
	cmd := &cobra.Command{
		Use:   "apply --file FILE",
		Short: "Create the objects of files, or change them to what the files say",
		Long: `Create the objects of kind Fleet in files, or change them to what the files say. Files
have one or more documents in YAML or JSON, of any version of the API. Applying the same
file again changes nothing.

All objects are checked before the first is written; if one has an error, nothing is
applied. A change starts a rollout only if it needs one: see ` + "`muster diff`" + `.

--prune also deletes the objects with the labels of --selector that are in no file. It
lists them and asks for confirmation; without a terminal, pass --yes.

--wait waits until all objects are ready. It ends early, with exit code 7, if every object
that is not ready is stalled, such as after a failure: nothing happens then before somebody
does something. If the time is over, the exit code is 1.`,
		Example: `  muster apply -f fleet.yaml
  muster apply -f fleets/ --dry-run
  muster apply -f fleets/ --prune --selector team=web --yes --wait --timeout 2h
  muster export | muster apply -f -`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch err := files.check(); {
			case err != nil:
				return err
			case prune && selector == "":
				return &usageError{errors.New("--prune needs --selector: without labels it would delete every object that is in no file")}
			case selector != "" && !prune:
				return &usageError{errors.New("--selector chooses which objects --prune deletes: add --prune")}
			case prune && !yes && !dryRun && (files.readsStdin() || !isTerminal(cmd.InOrStdin())):
				return &usageError{errNoQuestion}
			case wait.on && dryRun:
				return &usageError{errors.New("--wait waits for what is applied: leave it out, or --dry-run")}
			}
			labels, err := parseSelector(selector)
			if err != nil {
				return &usageError{err}
			}
			objects, err := files.read(cmd)
			if err != nil {
				return err
			}
			work := application{client: a, cmd: cmd, validate: files.validate}
			if err := work.check(objects, labels); err != nil {
				return err
			}
			var surplus []string
			if prune {
				if surplus, err = a.surplus(cmd.Context(), selector, objects); err != nil {
					return err
				}
			}
			if dryRun {
				for _, name := range surplus {
					work.pruned(name)
				}
				return work.show()
			}
			if len(surplus) > 0 && !yes {
				question := fmt.Sprintf("These objects are in no file, and are deleted: %s. Their agents keep what they run.\nGo on?", strings.Join(surplus, ", "))
				if err := confirm(cmd, question, "nothing was applied"); err != nil {
					return err
				}
			}
			err = work.write(objects)
			if err == nil {
				err = work.prune(surplus)
			}
			if err != nil || !wait.on {
				return errors.Join(work.show(), err)
			}
			if err := work.show(); err != nil {
				return err
			}
			_, err = a.awaitFleets(cmd, work.written, condition{spec.Ready, spec.True}, wait.timeout)
			return err
		},
	}
	f := cmd.Flags()
	files.flags(cmd)
	f.BoolVar(&dryRun, "dry-run", false, "check everything on the server, and change nothing")
	f.BoolVar(&prune, "prune", false, "also delete objects with the labels of --selector that are in no file")
	f.StringVarP(&selector, "selector", "l", "", "labels of the objects that --prune may delete, such as team=web,stage=prod")
	f.BoolVarP(&yes, "yes", "y", false, "with --prune: delete without asking for confirmation")
	wait.flags(f, "all objects are ready")
	outputs(cmd, "yaml", "name")
	return cmd
}

// parseSelector returns the labels of a selector such as team=web,stage=prod.
func parseSelector(selector string) (map[string]string, error) {
	labels := map[string]string{}
	for part := range strings.SplitSeq(selector, ",") {
		if selector == "" {
			break
		}
		key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || key == "" || strings.ContainsAny(key, "!") || strings.HasPrefix(value, "=") {
			return nil, fmt.Errorf("--selector: %q is not a label such as team=web", part)
		}
		labels[key] = value
	}
	return labels, nil
}

// What became of an object.
const (
	objectCreated    = "created"
	objectConfigured = "configured"
	objectUnchanged  = "unchanged"
	objectPruned     = "pruned"
)

// application is one run of apply.
type application struct {
	client   *client
	cmd      *cobra.Command
	validate string
	// results are the objects as the server has answered, or would.
	results []applied
	dryRun  bool
	written []awaitedFleet
}

// applied is an object, and what became of it.
type applied struct {
	name, what string
	body       json.RawMessage
}

// check has the server check all objects. It reports the errors of all of them.
func (w *application) check(objects []*declaration, labels map[string]string) error {
	w.dryRun = true
	var failed []string
	for _, d := range objects {
		got, err := w.put(d)
		var refused *refusal
		switch {
		case errors.As(err, &refused) && !isAboutNoObject(refused):
			failed = append(failed, d.locate(err).Error())
			continue
		case err != nil:
			return err
		}
		w.results = append(w.results, got)
		if missing := lacking(got.body, labels); missing != "" {
			fmt.Fprintf(w.cmd.ErrOrStderr(), "warning: %s: fleet/%s has no label %s of --selector: a later --prune would not find it\n", d.at(d.node), d.name, missing)
		}
	}
	switch len(failed) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("nothing was applied: %s", failed[0])
	}
	return fmt.Errorf("nothing was applied: %d of %s have errors:\n%s", len(failed), counted(len(objects), "object"), strings.Join(failed, "\n"))
}

// lacking returns one of the labels that an object does not have.
func lacking(body json.RawMessage, labels map[string]string) string {
	m, err := metadataOf(body)
	if err != nil {
		return ""
	}
	for key, value := range labels {
		if m.Labels[key] != value {
			return key + "=" + value
		}
	}
	return ""
}

// put applies an object, or with dryRun only checks it, and prints the server's warnings.
func (w *application) put(d *declaration) (applied, error) {
	out := applied{name: d.name}
	ctx := w.cmd.Context()
	before, err := w.client.fleetCall(ctx, adminapi.GetFleet.Call, url.Values{"apiVersion": {d.apiVersion}}, nil, d.name)
	if isRefusal(err, http.StatusNotFound, http.StatusBadRequest) {
		err = nil // a new object; or a wrong apiVersion, which PUT explains
	}
	if err != nil {
		return out, err
	}
	q := url.Values{"validate": {w.validate}}
	if w.dryRun {
		q.Set("dryRun", "All")
	}
	got, err := w.client.fleetCall(ctx, adminapi.ApplyFleet.Call, q, d.text, d.name)
	if err != nil {
		return out, err
	}
	for _, text := range got.warnings {
		if w.dryRun { // the same ones follow when it is written
			fmt.Fprintln(w.cmd.ErrOrStderr(), "warning:", d.locateText(text))
		}
	}
	out.body = got.body
	switch {
	case got.created:
		out.what = objectCreated
	case sameDeclared(before.body, got.body):
		out.what = objectUnchanged
	default:
		out.what = objectConfigured
	}
	return out, nil
}

// sameDeclared reports whether users have written the same in two objects.
func sameDeclared(a, b json.RawMessage) bool {
	type declared struct {
		Metadata struct {
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec any `json:"spec"`
	}
	var was, is declared
	return json.Unmarshal(a, &was) == nil && json.Unmarshal(b, &is) == nil && reflect.DeepEqual(was, is)
}

// write applies all objects. If one fails, the error says which ones are applied.
func (w *application) write(objects []*declaration) error {
	w.dryRun, w.results = false, nil
	for _, d := range objects {
		got, err := w.put(d)
		if err != nil {
			return w.stopped(d.locate(err), len(objects))
		}
		w.results = append(w.results, got)
		w.print(got)
		m, err := metadataOf(got.body)
		if err != nil {
			return err
		}
		w.written = append(w.written, awaitedFleet{d.name, m.Generation})
	}
	return nil
}

// prune deletes objects.
func (w *application) prune(names []string) error {
	for _, name := range names {
		_, err := w.client.deleteFleet(w.cmd.Context(), name, false)
		if isRefusal(err, http.StatusNotFound) {
			continue // somebody else deleted it
		}
		if err != nil {
			return w.stopped(fmt.Errorf("fleet/%s is not deleted: %w", name, err), len(w.results)+len(names))
		}
		w.print(applied{name: name, what: objectPruned})
	}
	return nil
}

// stopped says what was applied before an error.
func (w *application) stopped(err error, of int) error {
	done := "nothing was applied before it"
	if len(w.results) > 0 {
		done = fmt.Sprintf("applied before it, %d of %d: %s", len(w.results), of, strings.Join(each(w.results, func(r applied) string { return "fleet/" + r.name }), ", "))
	}
	return fmt.Errorf("%w\n%s", err, done)
}

// pruned notes an object that would be deleted.
func (w *application) pruned(name string) {
	w.results = append(w.results, applied{name: name, what: objectPruned})
}

// print prints one result at once, for people.
func (w *application) print(r applied) {
	if w.client.output == "human" {
		fmt.Fprintf(w.cmd.OutOrStdout(), "fleet/%s %s%s\n", r.name, r.what, dryRunWords(w.dryRun))
	}
}

// show prints the results in the form that -o names. For people, what is written has been
// printed already.
func (w *application) show() error {
	var bodies []json.RawMessage
	for _, r := range w.results {
		if r.body != nil {
			bodies = append(bodies, r.body)
		}
	}
	return w.client.showObjects(w.cmd.OutOrStdout(), bodies, true, func(io.Writer) {
		if w.dryRun {
			for _, r := range w.results {
				w.print(r)
			}
		}
	})
}

// surplus returns the names of the objects that a selector finds and that are not given.
func (a *client) surplus(ctx context.Context, selector string, given []*declaration) ([]string, error) {
	list, err := a.fleets(ctx, selector)
	if err != nil {
		return nil, err
	}
	objects, err := tryEach(list.Items, object)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range objects {
		if !slices.ContainsFunc(given, func(d *declaration) bool { return d.name == f.Metadata.Name }) {
			names = append(names, f.Metadata.Name)
		}
	}
	return names, nil
}
