package test

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The fields of Kubernetes objects that the manifests use. A manifest with another field fails the
// test, because that field is misspelt or no test checks it.
type (
	metadata struct {
		Name   string
		Labels map[string]string
	}
	deployment struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   metadata
		Spec       struct {
			Replicas int
			Strategy struct {
				Type          string
				RollingUpdate struct {
					MaxSurge       int `yaml:"maxSurge"`
					MaxUnavailable int `yaml:"maxUnavailable"`
				} `yaml:"rollingUpdate"`
			}
			Selector struct {
				MatchLabels map[string]string `yaml:"matchLabels"`
			}
			Template struct {
				Metadata metadata
				Spec     pod
			}
		}
	}
	pod struct {
		Grace           int            `yaml:"terminationGracePeriodSeconds"`
		Automount       *bool          `yaml:"automountServiceAccountToken"`
		SecurityContext map[string]any `yaml:"securityContext"`
		Spread          []any          `yaml:"topologySpreadConstraints"`
		Containers      []container
		Volumes         []volume
	}
	container struct {
		Name, Image string
		Args        []string
		Env         []struct {
			Name, Value string
			ValueFrom   struct {
				SecretKeyRef struct {
					Name, Key string
					Optional  bool
				} `yaml:"secretKeyRef"`
			} `yaml:"valueFrom"`
		}
		Ports []struct {
			Name          string
			ContainerPort string `yaml:"containerPort"`
		}
		StartupProbe    probe `yaml:"startupProbe"`
		ReadinessProbe  probe `yaml:"readinessProbe"`
		LivenessProbe   probe `yaml:"livenessProbe"`
		Resources       struct{ Requests, Limits map[string]string }
		SecurityContext struct {
			Escalation   *bool `yaml:"allowPrivilegeEscalation"`
			ReadOnly     bool  `yaml:"readOnlyRootFilesystem"`
			Capabilities struct{ Drop []string }
		} `yaml:"securityContext"`
		VolumeMounts []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
			ReadOnly  bool   `yaml:"readOnly"`
		} `yaml:"volumeMounts"`
	}
	probe struct {
		HTTPGet          struct{ Path, Port string } `yaml:"httpGet"`
		PeriodSeconds    int                         `yaml:"periodSeconds"`
		TimeoutSeconds   int                         `yaml:"timeoutSeconds"`
		FailureThreshold int                         `yaml:"failureThreshold"`
	}
	volume struct {
		Name     string
		EmptyDir *struct{} `yaml:"emptyDir"`
		Secret   struct {
			SecretName  string `yaml:"secretName"`
			DefaultMode int    `yaml:"defaultMode"`
			Items       []struct{ Key, Path string }
		}
	}
	exposed struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   metadata
		Spec       struct {
			Selector map[string]string
			Ports    []struct {
				Name       string
				Port       int
				TargetPort string `yaml:"targetPort"`
			}
		}
	}
	budget struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   metadata
		Spec       struct {
			MinAvailable int `yaml:"minAvailable"`
			Selector     struct {
				MatchLabels map[string]string `yaml:"matchLabels"`
			}
		}
	}
)

// manifests are the objects of deploy/kubernetes.
type manifests struct {
	server, worker deployment
	service        exposed
	budget         budget
}

func readManifests(t *testing.T) *manifests {
	t.Helper()
	var m manifests
	decodeStrict(t, "kubernetes/server.yaml", func(kind string) any {
		switch kind {
		case "Deployment":
			return &m.server
		case "Service":
			return &m.service
		case "PodDisruptionBudget":
			return &m.budget
		}
		t.Fatalf("server.yaml has a %q", kind)
		return nil
	})
	decodeStrict(t, "kubernetes/worker.yaml", func(string) any { return &m.worker })
	return &m
}

func kubernetes(t *testing.T) (all []*deployed) {
	t.Helper()
	m := readManifests(t)
	for _, d := range []*deployment{&m.server, &m.worker} {
		c := &d.Spec.Template.Spec.Containers[0]
		x := &deployed{
			what: d.Metadata.Name, args: c.Args, env: make(map[string]string),
			grace: time.Duration(d.Spec.Template.Spec.Grace) * time.Second,
		}
		for _, e := range c.Env {
			x.env[e.Name] = e.Value
		}
		for _, p := range c.Ports {
			x.ports = append(x.ports, p.ContainerPort)
		}
		all = append(all, x)
	}
	return all
}

// probes returns the paths that Kubernetes probes on a server.
func probes(t *testing.T) []string {
	t.Helper()
	c := &readManifests(t).server.Spec.Template.Spec.Containers[0]
	paths := []string{c.StartupProbe.HTTPGet.Path, c.ReadinessProbe.HTTPGet.Path, c.LivenessProbe.HTTPGet.Path}
	if slices.Contains(paths, "") {
		t.Errorf("the server is probed at %q", paths)
	}
	return paths
}

// Rule: the manifests fit together: labels, ports, volumes and secrets refer to each other, no
// container runs as root, and at least one server runs while an operator drains nodes.
func TestTheManifestsFitTogether(t *testing.T) {
	t.Parallel()
	m := readManifests(t)
	labels := m.server.Spec.Template.Metadata.Labels
	for what, wanted := range map[string]map[string]string{
		"Deployment": m.server.Spec.Selector.MatchLabels, "Service": m.service.Spec.Selector,
		"PodDisruptionBudget": m.budget.Spec.Selector.MatchLabels,
	} {
		if !covers(labels, wanted) || covers(m.worker.Spec.Template.Metadata.Labels, wanted) {
			t.Errorf("the %s selects %v; the servers have %v", what, wanted, labels)
		}
	}
	if !covers(m.worker.Spec.Template.Metadata.Labels, m.worker.Spec.Selector.MatchLabels) {
		t.Error("the Deployment of the workers does not select them")
	}
	if n := m.budget.Spec.MinAvailable; n < 1 || n >= m.server.Spec.Replicas {
		t.Errorf("%d of %d servers must run: no node could ever be drained, or all at once", n,
			m.server.Spec.Replicas)
	}
	port := m.service.Spec.Ports[0]
	if c := m.server.Spec.Template.Spec.Containers[0]; port.TargetPort != c.Ports[0].Name ||
		c.ReadinessProbe.HTTPGet.Port != port.TargetPort {
		t.Errorf("the service leads to %q, the server listens on %q", port.TargetPort, c.Ports[0].Name)
	}
	for _, e := range m.worker.Spec.Template.Spec.Containers[0].Env {
		if e.Name == "BELAY_SERVER" && e.Value != "http://"+m.service.Metadata.Name+":7420" {
			t.Errorf("the workers go to %s", e.Value)
		}
	}
	for _, d := range []*deployment{&m.server, &m.worker} {
		checkPod(t, d)
	}
}

func covers(labels, wanted map[string]string) bool {
	for k, v := range wanted {
		if labels[k] != v {
			return false
		}
	}
	return len(wanted) > 0
}

// checkPod checks that the parts of one pod fit together.
func checkPod(t *testing.T, d *deployment) {
	t.Helper()
	p := &d.Spec.Template.Spec
	c := &p.Containers[0]
	if p.SecurityContext["runAsNonRoot"] != true || p.SecurityContext["runAsUser"] != 65532 ||
		c.SecurityContext.Escalation == nil || *c.SecurityContext.Escalation ||
		!slices.Equal(c.SecurityContext.Capabilities.Drop, []string{"ALL"}) || p.Automount == nil || *p.Automount {
		t.Errorf("%s may do more than it needs: %+v", d.Metadata.Name, c.SecurityContext)
	}
	volumes := make(map[string]volume)
	for _, v := range p.Volumes {
		volumes[v.Name] = v
	}
	at := make(map[string]string)
	for _, mount := range c.VolumeMounts {
		v, ok := volumes[mount.Name]
		if !ok || v.EmptyDir == nil && v.Secret.SecretName == "" {
			t.Errorf("%s mounts %s, which is not a volume", d.Metadata.Name, mount.Name)
		}
		for _, item := range v.Secret.Items {
			at[mount.MountPath+"/"+item.Path] = item.Key
		}
	}
	for _, e := range c.Env {
		secret := e.ValueFrom.SecretKeyRef
		if strings.HasSuffix(e.Name, "PASSWORD") && (secret.Name == "" || secret.Key == "" || e.Value != "") {
			t.Errorf("%s: %s is not from a secret", d.Metadata.Name, e.Name)
		}
		if strings.HasSuffix(e.Name, "_FILE") && at[e.Value] == "" {
			t.Errorf("%s: %s is %s, where no secret is", d.Metadata.Name, e.Name, e.Value)
		}
	}
}

// Rule: the pod of an agent worker has the resources that ten agents side by side need according to
// measurements: a request of 2 GiB of memory, a limit of 12 GiB, and no CPU limit. An update stops
// the old pod before it starts the new pod.
func TestTheResourcesOfTheAgentPod(t *testing.T) {
	t.Parallel()
	m := readManifests(t)
	d := &m.worker.Spec
	c := &d.Template.Spec.Containers[0]
	if d.Replicas != 1 || d.Strategy.Type != "Recreate" {
		t.Errorf("%d replicas by %s", d.Replicas, d.Strategy.Type)
	}
	if r := c.Resources; r.Requests["memory"] != "2Gi" || r.Limits["memory"] != "12Gi" || r.Requests["cpu"] != "1" ||
		r.Limits["cpu"] != "" {
		t.Errorf("resources %+v", r)
	}
	if i := slices.Index(c.Args, "--concurrency"); i < 0 || c.Args[i+1] != "10" {
		t.Errorf("the worker is started with %q", c.Args)
	}
	if s := &m.server.Spec; s.Strategy.Type != "RollingUpdate" || s.Strategy.RollingUpdate.MaxUnavailable != 0 {
		t.Errorf("servers are replaced by %+v", s.Strategy)
	}
}
