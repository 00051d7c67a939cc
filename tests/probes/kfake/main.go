// Serves franz-go's kfake, a Kafka cluster in memory, on ports of the loopback that are free. Writes its address as a
// line, and ends when its standard input does: it does not outlive who started it.
package main

import (
	"fmt"
	"io"
	"log"
	"os"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(0), kfake.ClusterID("kfake"))
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	for _, address := range cluster.ListenAddrs() {
		fmt.Println(address)
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		log.Print(err)
	}
}
