package chart

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"
)

const version = "1.2.3"

var (
	options = Options{Dir: filepath.Join("..", "kubernetes", "chart"), Version: version, Time: time.Unix(1_790_000_000, 0)}

	// several are the values of several servers with everything that is optional.
	several = map[string]any{
		"replicas": 3,
		"image":    map[string]any{"repository": "registry.example.com/muster", "digest": "sha256:" + strings.Repeat("0a", 32)},
		"agents":   map[string]any{"url": "https://fleet.example.com:8220", "service": map[string]any{"type": "LoadBalancer", "annotations": map[string]any{"a/b": "c"}}},
		"elasticsearch": map[string]any{
			"hosts": []any{"https://es1.example.com:9200"}, "username": "muster", "credentialsSecret": "es", "caSecret": "es-ca",
		},
		"sharedKeys":        map[string]any{"caSecret": "muster-ca", "trustSecret": "muster-trust"},
		"config":            map[string]any{"checkin": map[string]any{"poll": "2m"}, "tls": map[string]any{"names": []any{"fleet.example.org"}}, "log": map[string]any{"level": "debug"}},
		"persistence":       map[string]any{"storageClass": "fast"},
		"imagePullSecrets":  []any{map[string]any{"name": "pull"}},
		"podAnnotations":    map[string]any{"a/b": "c"},
		"podLabels":         map[string]any{"team": "fleet"},
		"nodeSelector":      map[string]any{"disk": "ssd"},
		"tolerations":       []any{map[string]any{"key": "fleet", "operator": "Exists"}},
		"priorityClassName": "high",
		"networkPolicy":     map[string]any{"enabled": true, "adminFrom": []any{map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"app": "proxy"}}}}},
		"serviceMonitor":    map[string]any{"enabled": true, "keySecret": "prometheus"},
	}
)

// packaged returns the path of the packaged chart.
func packaged(t *testing.T) string {
	t.Helper()
	file, err := Write(t.TempDir(), options)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// render returns what the packaged chart installs with some values, by file.
func render(t *testing.T, values map[string]any) (map[string]string, error) {
	t.Helper()
	c, err := loader.Load(packaged(t))
	if err != nil {
		t.Fatal(err)
	}
	v, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "fleet", Namespace: "ops", IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, v)
}

func TestPackagedChartIsReproducible(t *testing.T) {
	var packages [][]byte
	for range 2 {
		data, err := os.ReadFile(packaged(t))
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, data)
	}
	if !bytes.Equal(packages[0], packages[1]) {
		t.Error("the same chart was packaged twice, with different bytes")
	}
	c, err := loader.Load(packaged(t))
	if err != nil {
		t.Fatal(err)
	}
	if c.Metadata.Version != version || c.Metadata.AppVersion != version {
		t.Errorf("the versions are %s and %s, want %s", c.Metadata.Version, c.Metadata.AppVersion, version)
	}
}

func TestVersionThatHelmRefusesIsNotPackaged(t *testing.T) {
	o := options
	o.Version = "latest"
	if _, err := Write(t.TempDir(), o); err == nil || !strings.Contains(err.Error(), "latest") {
		t.Errorf("the version %q: %v", o.Version, err)
	}
}

func TestHelmFindsNothingToCorrect(t *testing.T) {
	for name, values := range map[string]map[string]any{"one": {}, "several": several} {
		linter := lint.All(options.Dir, values, "ops", true)
		for _, m := range linter.Messages {
			// An icon is only recommended.
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %s", name, m)
			}
		}
	}
}

// objects decodes what was rendered into the types of Kubernetes, in which every field must be known.
// Objects of other APIs have no type here and are returned as they are.
func objects(t *testing.T, rendered map[string]string) (known map[string]runtime.Object, others map[string]map[string]any) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	known, others = map[string]runtime.Object{}, map[string]map[string]any{}
	for file, text := range rendered {
		if !strings.HasSuffix(file, ".yaml") {
			continue
		}
		for doc := range strings.SplitSeq(text, "\n---\n") {
			var o struct {
				Kind     string
				Metadata struct{ Name, Namespace string }
			}
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Fatalf("%s: %v\n%s", file, err, doc)
			}
			if o.Kind == "" {
				continue
			}
			name := o.Kind + " " + o.Metadata.Name
			if o.Metadata.Namespace != "ops" {
				t.Errorf("%s is in the namespace %q", name, o.Metadata.Namespace)
			}
			object, _, err := decoder.Decode([]byte(doc), nil, nil)
			switch {
			case runtime.IsNotRegisteredError(err):
				other := map[string]any{}
				if err := yaml.UnmarshalStrict([]byte(doc), &other); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				others[name] = other
			case err != nil:
				t.Errorf("%s: Kubernetes would refuse it: %v\n%s", name, err, doc)
			default:
				known[name] = object
			}
		}
	}
	return known, others
}

func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func TestKubernetesKnowsEveryField(t *testing.T) {
	for _, c := range []struct {
		name          string
		values        map[string]any
		known, others []string
	}{
		{"one server", nil, []string{
			"ConfigMap fleet-muster", "Service fleet-muster", "Service fleet-muster-admin", "Service fleet-muster-agents", "StatefulSet fleet-muster",
		}, nil},
		{"several servers", several, []string{
			"ConfigMap fleet-muster", "NetworkPolicy fleet-muster", "PodDisruptionBudget fleet-muster", "Service fleet-muster", "Service fleet-muster-admin",
			"Service fleet-muster-agents", "StatefulSet fleet-muster",
		}, []string{"ServiceMonitor fleet-muster"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rendered, err := render(t, c.values)
			if err != nil {
				t.Fatal(err)
			}
			known, others := objects(t, rendered)
			if diff := cmp.Diff(c.known, names(known)); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.others, names(others)); diff != "" {
				t.Errorf("objects of other APIs (-want +got):\n%s", diff)
			}
			checkPod(t, known["StatefulSet fleet-muster"].(*appsv1.StatefulSet))
		})
	}
}

// checkPod checks what ties the parts of a StatefulSet together: decoding does not.
func checkPod(t *testing.T, set *appsv1.StatefulSet) {
	t.Helper()
	pod := set.Spec.Template
	for k, v := range set.Spec.Selector.MatchLabels {
		if pod.Labels[k] != v {
			t.Errorf("the pods have the label %s=%q, and the selector wants %q", k, pod.Labels[k], v)
		}
	}
	volumes := []string{}
	for _, v := range pod.Spec.Volumes {
		volumes = append(volumes, v.Name)
	}
	for _, c := range set.Spec.VolumeClaimTemplates {
		volumes = append(volumes, c.Name)
	}
	c := pod.Spec.Containers[0]
	for _, m := range c.VolumeMounts {
		if !slices.Contains(volumes, m.Name) {
			t.Errorf("%s is mounted, and the volumes are %v", m.Name, volumes)
		}
	}
	if len(volumes) != len(c.VolumeMounts) {
		t.Errorf("the volumes are %v, and the mounts %v", volumes, c.VolumeMounts)
	}
	if p := pod.Spec.SecurityContext; !*p.RunAsNonRoot || p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod's security context is %v", p)
	}
	if s := c.SecurityContext; !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("the container's security context is %v", s)
	}
}

// build builds the server as it is in this repository.
func build(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "muster")
	c := exec.CommandContext(t.Context(), "go", "build", "-tags=nomsgpack", "-trimpath", "-ldflags=-s -w -X main.version="+version, "-o", program, "./server")
	c.Dir, c.Env = filepath.Join("..", "..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

func TestServerAcceptsItsConfiguration(t *testing.T) {
	program := build(t)
	for _, c := range []struct {
		name   string
		values map[string]any
		want   string
	}{
		{"one", nil, `
admin: {listen: ":8221", url: "https://fleet-muster-admin.ops.svc:8221"}
agents: {listen: ":8220", url: "https://fleet-muster-agents.ops.svc:8220"}
data: /var/lib/muster
tls: {names: [fleet-muster-agents, fleet-muster-agents.ops, fleet-muster-agents.ops.svc, fleet-muster-admin, fleet-muster-admin.ops, fleet-muster-admin.ops.svc]}
`},
		{"several", several, `
admin: {listen: ":8221", url: "https://fleet-muster-admin.ops.svc:8221"}
agents: {listen: ":8220", url: "https://fleet.example.com:8220"}
checkin: {poll: 2m}
data: /var/lib/muster
log: {level: debug}
store: {elasticsearch: {hosts: ["https://es1.example.com:9200"], prefix: muster-, username: muster, ca: /etc/muster/elasticsearch/ca.crt}}
tls: {names: [fleet.example.org, fleet-muster-agents, fleet-muster-agents.ops, fleet-muster-agents.ops.svc, fleet-muster-admin, fleet-muster-admin.ops, fleet-muster-admin.ops.svc]}
`},
		{"an own certificate", map[string]any{"tlsSecret": "certificate", "config": map[string]any{"admin": map[string]any{"kibana_version": "9.2.0"}}}, `
admin: {listen: ":8221", url: "https://fleet-muster-admin.ops.svc:8221", kibana_version: 9.2.0}
agents: {listen: ":8220", url: "https://fleet-muster-agents.ops.svc:8220"}
data: /var/lib/muster
tls:
  certificate: /etc/muster/tls/tls.crt
  key: /etc/muster/tls/tls.key
  names: [fleet-muster-agents, fleet-muster-agents.ops, fleet-muster-agents.ops.svc, fleet-muster-admin, fleet-muster-admin.ops, fleet-muster-admin.ops.svc]
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			rendered, err := render(t, c.values)
			if err != nil {
				t.Fatal(err)
			}
			known, _ := objects(t, rendered)
			text := known["ConfigMap fleet-muster"].(*corev1.ConfigMap).Data["server.yml"]
			var got, want map[string]any
			if err := errors.Join(yaml.UnmarshalStrict([]byte(text), &got), yaml.UnmarshalStrict([]byte(c.want), &want)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the configuration (-want +got):\n%s", diff)
			}
			file := filepath.Join(t.TempDir(), "server.yml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), program, "server", "--check", "--config", file).CombinedOutput(); err != nil {
				t.Errorf("the server refuses it: %v\n%s\n%s", err, out, text)
			}
		})
	}
}

func TestValuesThatCannotWorkAreRefused(t *testing.T) {
	elastic := map[string]any{"hosts": []any{"https://es1:9200"}}
	for _, c := range []struct {
		values map[string]any
		want   string
	}{
		{map[string]any{"replicas": 2}, "replicas is 2, and the embedded store belongs to one server: set elasticsearch.hosts"},
		{map[string]any{"replicas": 0}, "replicas"},
		{map[string]any{"replica": 2}, "replica"},
		{map[string]any{"elasticsearch": elastic}, "sharedKeys.trustSecret is missing"},
		{map[string]any{"elasticsearch": elastic, "sharedKeys": map[string]any{"trustSecret": "x"}}, "sharedKeys.caSecret is missing"},
		{map[string]any{"sharedKeys": map[string]any{"caSecret": "x"}, "tlsSecret": "y"}, "sharedKeys.caSecret and tlsSecret are both set"},
		{map[string]any{"elasticsearch": map[string]any{"username": "x"}}, "elasticsearch.credentialsSecret"},
		{map[string]any{"elasticsearch": map[string]any{"hosts": []any{"es1:9200"}}}, "elasticsearch"},
		{map[string]any{"agents": map[string]any{"url": "http://fleet:8220"}}, "url"},
		{map[string]any{"image": map[string]any{"digest": "1.0.0"}}, "digest"},
		{map[string]any{"config": map[string]any{"store": map[string]any{}}}, "config.store is set by the chart"},
		{map[string]any{"config": map[string]any{"agents": map[string]any{"listen": ":1"}}}, "config.agents.listen is set by the chart"},
		{map[string]any{"config": map[string]any{"tls": map[string]any{"key": "x"}}}, "config.tls.key is set by the chart"},
		{map[string]any{"serviceMonitor": map[string]any{"enabled": true}}, "serviceMonitor.keySecret is missing"},
		{map[string]any{"serviceMonitor": map[string]any{"enabled": true, "keySecret": "x"}}, "serviceMonitor.caSecret is missing"},
		{map[string]any{"terminationGracePeriodSeconds": 5}, "terminationGracePeriodSeconds"},
	} {
		t.Run(fmt.Sprint(c.values), func(t *testing.T) {
			_, err := render(t, c.values)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestNotesSayWhatComesNext(t *testing.T) {
	rendered, err := render(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	notes := rendered["muster/templates/NOTES.txt"]
	for _, want := range []string{"fleet-muster-0 -- /muster admin-key --config /etc/muster/server.yml", "muster keys create", "set agents.url", "data-fleet-muster-0"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
}
