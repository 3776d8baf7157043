package process

import "github.com/belaydev/belay/internal/host"

// Members lists the processes of a run. If user is set, no other run has that user, and the list
// has all processes of that user. Otherwise Members finds the processes by the run's supervisor, by
// the run's cgroup, and by the run id in their environment (the mark). The list may contain
// supervisors.
func Members(run string, user *host.User) (pids []int, err error) {
	if user != nil {
		for _, s := range processesOf(user.UID) {
			pids = append(pids, s.PID)
		}
		return pids, nil
	}
	all, err := find(func(id string) bool { return id == run })
	for _, t := range all {
		pids = append(pids, t.PID)
	}
	return pids, err
}
