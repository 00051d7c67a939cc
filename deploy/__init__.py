"""What Offsetwatch runs on, and how it is put there: Java, jars, and real Kafka brokers on this machine."""
